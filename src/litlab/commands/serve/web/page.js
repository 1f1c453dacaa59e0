// The form of the model's kind, and what happens when it is sent.

const find = (id) => document.getElementById(id);
const state = { kind: "", facts: {}, asked: 0, preview: "" };

function token() {
  return sessionStorage.getItem("token") || "";
}

function headers(more = {}) {
  return token() ? { ...more, Authorization: `Bearer ${token()}` } : more;
}

function tell(message) {
  find("error").textContent = message;
  find("error").hidden = !message;
}

async function call(address, options) {
  let response;
  try {
    response = await fetch(address, options);
  } catch {
    throw new Error("The server can't be reached.");
  }
  const answer = await response.json().catch(() => ({ error: `The server answered with status ${response.status}.` }));
  if (response.status === 401) find("access").hidden = false;
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

async function ask(body, type = "application/json") {
  const number = ++state.asked;
  const json = !(body instanceof FormData);
  const buttons = document.querySelectorAll(`#${state.kind} button`);
  buttons.forEach((button) => { button.disabled = true; });
  tell("");
  try {
    const begun = performance.now();
    const answer = await call("/predict", {
      method: "POST",
      headers: headers(json ? { "Content-Type": type } : {}),
      body: json ? JSON.stringify(body) : body,
    });
    if (number !== state.asked) return; // a later one has been sent
    const taken = element("p", { class: "small" }, `Answered in ${Math.round(performance.now() - begun)} ms.`);
    const warnings = (answer.warnings || []).map((text) => element("p", { class: "error" }, `Warning: ${text}`));
    find("answer").replaceChildren(...warnings, ...drawn(state.kind, answer), taken);
    find("answer").hidden = false;
  } catch (error) {
    if (number !== state.asked) return;
    find("answer").hidden = true;
    tell(error.message);
  } finally {
    buttons.forEach((button) => { button.disabled = false; });
  }
}

function form(file) {
  const body = new FormData();
  body.append("file", file);
  return body;
}

function image(file) {
  if (!file) return;
  URL.revokeObjectURL(state.preview);
  state.preview = URL.createObjectURL(file);
  const preview = find("preview");
  preview.hidden = true;
  preview.onload = () => { preview.hidden = false; };
  preview.src = state.preview;
  preview.alt = `Preview of ${file.name}`;
  find("invitation").textContent = file.name;
  ask(form(file));
}

async function series(file) {
  if (file) find("csv").value = await file.text();
  if (!find("csv").value.trim()) return tell("Paste a series, or choose a file.");
  return ask({ series: find("csv").value });
}

function row() {
  const values = {};
  for (const cell of find("cells").querySelectorAll("input, select")) {
    values[cell.name] = cell.value === "" ? null : cell.type === "number" ? Number(cell.value) : cell.value;
  }
  if (Object.values(values).every((value) => value === null)) return tell("Fill in a field, or choose a file.");
  return ask({ rows: [values] });
}

function makeCells() {
  const labelled = (name, control) => element("label", {}, name, control);
  for (const { name, kind } of state.facts.columns) {
    if (kind === "category") {
      const select = element("select", { name }, element("option", { value: "" }, "missing"));
      select.append(...state.facts.categories[name].map((text) => element("option", { value: text }, text)));
      find("cells").append(labelled(name, select));
    } else {
      const type = kind === "number" ? { type: "number", step: "any" } : { type: "text" };
      const placeholder = kind === "number" ? "missing" : state.facts.form.time_format || "2000-01-31";
      find("cells").append(labelled(name, element("input", { ...type, name, placeholder })));
    }
  }
}

function commands() {
  const start = `curl ${location.origin}/predict` + (token() ? " -H 'Authorization: Bearer TOKEN'" : "");
  const quoted = (body) => ` -H 'Content-Type: application/json' -d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`;
  const facts = state.facts;
  const values = { number: () => 1, category: (name) => facts.categories[name][0], time: () => null };
  const examples = {
    images: [" -F file=@photo.jpg"],
    texts: [quoted({ text: "Some text" }), " -F text='Some text'"],
    series: [" -F file=@series.csv"],
    rows: state.kind === "rows" && [
      quoted({ rows: [Object.fromEntries(facts.columns.map(({ name, kind }) => [name, values[kind](name)]))] }),
      " -F file=@rows.csv",
    ],
    files: [" -F file=@FILE"],
  };
  find("commands").textContent = examples[state.kind].map((end) => start + end).join("\n");
}

function listen() {
  const send = { texts: () => ask({ text: find("text").value }), series: () => series(), rows: row };
  const upload = (file) => ask(form(file));
  const taken = { images: image, series, rows: upload, files: upload };
  const card = find(state.kind);
  card.addEventListener("submit", (event) => { event.preventDefault(); send[state.kind]?.(); });
  for (const chosen of card.querySelectorAll("input[type=file]")) {
    chosen.addEventListener("change", () => chosen.files.length && taken[state.kind](chosen.files[0]));
  }
  find("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) card.requestSubmit();
  });
  document.addEventListener("paste", (event) => {
    if (state.kind === "images") image([...event.clipboardData.files][0]);
  });
  for (const name of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(name, (event) => {
      event.preventDefault();
      card.classList.toggle("over", name === "dragover");
      const file = name === "drop" && event.dataTransfer.files[0];
      if (file && taken[state.kind]) taken[state.kind](file);
    });
  }
}

function predicts(target) {
  if (target.task === "classification") return `one of ${target.class_names.length} classes`;
  return target.task === "labels" ? `which of ${target.label_names.length} labels are true` : target.columns.join(", ");
}

async function begin() {
  const known = await call("/info", { headers: headers() });
  const first = !state.kind;
  state.kind = ["images", "texts", "series", "rows"].includes(known.kind) ? known.kind : "files";
  state.facts = known.facts;
  find("access").hidden = true;
  document.title = known.run.name;
  find("name").textContent = known.run.name;
  const facts = known.facts;
  if (facts.target) find("about").textContent = `Predicts ${predicts(facts.target)}.`;
  if (state.kind === "series") {
    find("about").textContent = `Forecasts ${facts.horizon} rows from the last ${facts.context_length}.`;
    const inputs = facts.covariates.filter((name) => name in facts.numbers || name in facts.categories);
    const columns = [facts.time_column, ...facts.target.columns, ...inputs];
    const future = inputs.length ? ` Below them ${facts.horizon} rows without ${facts.target.columns[0]}.` : "";
    find("columns").textContent =
      `A header and at least ${facts.context_length} rows, with the columns ${columns.join(", ")}.${future}`;
    find("csv").placeholder = columns.join(",");
  }
  commands();
  if (!first) return;
  if (state.kind === "rows") makeCells();
  find(state.kind).hidden = false;
  listen();
}

find("access").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", find("token").value.trim());
  tell("");
  begin().catch((error) => tell(error.message));
});
begin().catch((error) => tell(token() || find("access").hidden ? error.message : ""));
