"""Images: files of any size and kind, sent as a form's file or as base64."""

import base64
import binascii
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from litlab.commands.serve.body import Given
from litlab.commands.serve.limits import PIXELS
from litlab.commands.serve.readers.reader import Arrays, Asked, Reader, class_answer
from litlab.commands.serve.refusal import Refusal
from litlab.data.images.decode import KINDS, ImageMetadata, decode


class ImageReader(Reader):
    """Decodes an image and fits it as ``predict`` does."""

    def __init__(self, manifest: Mapping[str, Any], text_file: Callable[[str], str]) -> None:
        super().__init__(manifest, text_file)
        self.form = ImageMetadata(**self.facts)

    def read(self, given: Given) -> Asked:
        """Turn an image into one sample."""
        given.only("image")
        data = given.file
        if data is None:
            text = given.text("image")
            if text is None:
                raise Refusal(422, "there is no image; send it as the file 'file' of a form, or in base64 as 'image'")
            data = _decoded(text)
        with warnings.catch_warnings(action="ignore"):
            image = decode(data, self.form, most_pixels=PIXELS)
        if isinstance(image, str):
            raise Refusal(422, f"image: it can't be read ({image}); send a file of {', '.join(KINDS)}")
        return Asked({"image": image[None]})

    def answer(self, outputs: Arrays, asked: Asked) -> dict[str, Any]:
        """Return class and probabilities."""
        return class_answer(self.facts["class_names"], outputs["probabilities"][0])


def _decoded(text: str) -> bytes:
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Refusal(422, "image: it is not base64") from None
