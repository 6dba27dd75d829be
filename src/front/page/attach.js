
// Pictures of the next message: chosen, pasted or dropped, for models that take them.

const kPictureTypes = ["image/png", "image/jpeg", "image/webp", "image/gif"];
const kMostPictureBytes = 20 * 2 ** 20;

// Small pictures in a row; null where there are none. `remove(i)`: what a button at each does.
function pictureRow(pictures, remove) {
  if (!pictures?.length) return null;
  return el("div", { class: "pictures" }, ...pictures.map((url, i) => el("span", {},
    url ? el("img", { src: url, alt: `Picture ${i + 1}` }) : el("span", { class: "muted" }, `Picture ${i + 1}, not kept`),
    remove ? el("button", { "aria-label": `Remove picture ${i + 1}`, onclick: () => remove(i) }, "✕") : null)));
}

const attached = {
  pictures: [],
  take() {
    this.pictures = [];
    this.show();
  },
  show() {
    const row = pictureRow(this.pictures, (i) => {
      this.pictures = this.pictures.filter((_, other) => other !== i);
      this.show();
    });
    byId("attached").replaceChildren(...(row ? [row] : []));
  },
  async add(files) {
    for (const file of files) {
      if (!kPictureTypes.includes(file.type)) notice(`${file.name} is none of PNG, JPEG, WebP and GIF.`);
      else if (file.size > kMostPictureBytes) notice(`${file.name} has more than ${kMostPictureBytes / 2 ** 20} MiB.`);
      else this.pictures = [...this.pictures, await dataUrl(file)];
    }
    this.show();
  },
};

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

// Whether a model of /v1/models takes pictures.
const takesPictures = (id) => models.find((model) => model.id === id)?.architecture?.input_modalities?.includes("image") ?? false;
const mayAttach = () => askedModels().every(takesPictures);

function showAttach() {
  byId("attach").hidden = !mayAttach();
  if (!mayAttach()) attached.take();
}

function startAttach() {
  byId("attach").addEventListener("click", () => byId("attach-files").click());
  byId("attach-files").addEventListener("change", async (event) => {
    await attached.add(event.target.files);
    event.target.value = "";
  });
  const take = (event, data) => {
    if (!mayAttach() || data.files.length === 0) return;
    event.preventDefault();
    attached.add([...data.files]);
  };
  byId("prompt").addEventListener("paste", (event) => take(event, event.clipboardData));
  byId("talk").addEventListener("dragover", (event) => {
    if (mayAttach() && event.dataTransfer.types.includes("Files")) event.preventDefault();
  });
  byId("talk").addEventListener("drop", (event) => take(event, event.dataTransfer));
}
