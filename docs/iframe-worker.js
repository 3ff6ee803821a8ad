/* Browsers start no worker for a page that was opened from disk. There the theme's search
   runs in a frame instead; the theme asks for `IFrameWorker` by name. */
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) =>
        this.dispatchEvent(new MessageEvent("message", { data }));
      const script = frame.contentDocument.createElement("script");
      this.ready = new Promise((resolve) => { script.onload = resolve; });
      script.src = url;
      frame.contentDocument.body.append(script);
    }
    postMessage(data) {
      const event = new MessageEvent("message", { data });
      this.ready.then(() => this.inside.dispatchEvent(event));
    }
    terminate() {}
  };
}
