// Search from a file: a page that is opened from disk may not start a Worker, so that what would
// run in one runs in a hidden frame instead. Pages from a server have real workers.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<!doctype html><title>search</title>";
      this.inside = new Promise((ready) => {
        frame.addEventListener("load", () => {
          const inside = frame.contentWindow;
          inside.postMessage = (data) => {
            const answer = new MessageEvent("message", { data });
            this.dispatchEvent(answer);
            this.onmessage?.(answer);
          };
          const script = frame.contentDocument.createElement("script");
          script.src = address;
          script.addEventListener("load", () => ready(inside));
          frame.contentDocument.head.append(script);
        }, { once: true });
      });
      this.frame = frame;
      document.documentElement.append(frame);
    }

    postMessage(data) {
      this.inside.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
