// What anywidget mounts: one store for the model, one player for each view.

import { Store } from "./store.js";
import { PlayerView } from "./view.js";

export default () => {
  let store = null;
  return {
    initialize({ model }) {
      store = new Store(model);
      return () => store.close();
    },
    async render({ model, el }) {
      store ??= new Store(model);
      await store.ready;
      const view = new PlayerView(model, store, el);
      return () => view.close();
    },
  };
};
