# The commands in a container; docs/platforms.md says how to build and run it.
#   docker build --tag mine .
# Any base with Debian's packages will do: one with Python 3.11 to 3.13, or one whose own Python is that.
# torch brings its CUDA libraries along, so that a GPU needs no other base; only operators in CUDA need one with nvcc:
#   docker build --tag mine --build-arg BASE=nvidia/cuda:13.0.1-devel-ubuntu24.04 .
ARG BASE=python:3.12-slim-trixie

FROM ${BASE} AS environment
# g++ is what torch.compile and operators in C++ are built with.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends g++ \
    && { command -v python3 >/dev/null || apt-get install --yes --no-install-recommends python3-dev python3-venv; } \
    && rm -rf /var/lib/apt/lists/*
# Your own number (--build-arg UID=$(id -u)) makes files that the container writes into your folders yours.
ARG UID=1000
RUN useradd --no-log-init --non-unique --create-home --uid "${UID}" runner \
    && install --directory --owner runner /app /app/data /app/lightning_logs /opt/venv
USER runner
WORKDIR /app
ENV PATH=/opt/venv/bin:$PATH VENV=/opt/venv
# Where pip also looks, for example for a torch without CUDA, which makes the image 5 GB smaller.
ARG PIP_EXTRA_INDEX_URL
# Only the dependencies, so that a change of code does not install them again: the editable install points to the empty
# folder src/, which is filled below.
COPY --chown=runner pyproject.toml constraints.txt ./
RUN mkdir src && touch README.md LICENSE && python3 -m venv /opt/venv \
    && pip install --no-cache-dir --disable-pip-version-check --constraint constraints.txt \
        --editable '.[export,postgresql,serve,torchao]'

# What .devcontainer/devcontainer.json opens, with your checkout as /app.
FROM environment AS development
USER root
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends git make && rm -rf /var/lib/apt/lists/*
USER runner
# The file tells make that this environment is up to date; devcontainer.json makes it newer than your checkout.
RUN pip install --no-cache-dir --disable-pip-version-check --constraint constraints.txt --editable '.[dev]' \
    && install --mode 666 /dev/null /opt/venv/installed

FROM environment
COPY --chown=runner . .
ENTRYPOINT ["python", "-m", "project"]
CMD ["--help"]
