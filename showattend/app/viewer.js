// Draws readings: the photograph, the words of the caption, and over the photograph the attention of
// the word that is looked at. Python sends all weights once (viewer.py); every word, head, caption
// and strength is then drawn here, the same as showattend/overlay.py draws it.
// SCALE (palette, strength, dimming) stands before this in the page's head.

const showattend = (() => {
  const FADE_MS = 160; // from one word's attention to the next
  const SAID_MS = 260; // between two words of a caption that is just being told
  const PLAY_MS = 800; // between two words of the animation
  const STEPS = 256; // of the colour scale

  // --- small tools --------------------------------------------------------------------------------

  const bytes = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const floats = (base64) => new Float32Array(bytes(base64).buffer);
  const percent = (share) => `${(100 * share).toFixed(1)} %`;
  const calm = () => matchMedia('(prefers-reduced-motion: reduce)').matches;

  /** An element; children are elements or text, so that no caption is ever read as HTML. */
  const make = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
      else if (value !== null && value !== false) made.setAttribute(name, value === true ? '' : value);
    }
    made.append(...children);
    return made;
  };

  const palette = bytes(SCALE.palette);

  // --- the photograph under a word's weights ------------------------------------------------------

  /** Of each pixel of one side: its cell, how much of that cell it takes (the rest is the next
   * cell's), and whether the model saw it. The kernel is that of overlay._interpolation. */
  const interpolation = (cells, start, stop, pixels) => {
    const first = new Int32Array(pixels), share = new Float32Array(pixels), seen = new Uint8Array(pixels);
    for (let pixel = 0; pixel < pixels; pixel += 1) {
      const centre = pixel + 0.5;
      seen[pixel] = centre >= start && centre < stop;
      const place = ((centre - start) / (stop - start)) * cells - 0.5;
      const position = Math.min(Math.max(place, 0), cells - 1);
      first[pixel] = Math.min(Math.floor(position), Math.max(cells - 2, 0));
      const away = position - first[pixel];
      share[pixel] = 1 - away * away * (3 - 2 * away);
    }
    return { first, share, seen };
  };

  class Picture {
    /** `view` is one of viewer.told's; `width` is that of the canvas in pixels. */
    constructor(view, width = view.width) {
      this.view = view;
      this.zoom = width / view.width;
      const height = Math.max(1, Math.round(view.height * this.zoom));
      this.canvas = make('canvas', { width, height, role: 'img' });
      const [left, upper, right, lower] = view.seen.map((edge) => edge * this.zoom);
      this.across = interpolation(view.columns, left, right, width);
      this.down = interpolation(view.rows, upper, lower, height);
      this.pen = this.canvas.getContext('2d', { willReadFrequently: true });
      this.faded = {};
    }

    async load() {
      const photo = new Image();
      photo.src = this.view.photo;
      await photo.decode();
      const { width, height } = this.canvas;
      this.pen.imageSmoothingQuality = 'high';
      this.pen.drawImage(photo, 0, 0, width, height);
      this.bare = this.pen.getImageData(0, 0, width, height);
      return this;
    }

    /** The photograph paler and darker, in proportion to the strength. */
    fade(strength) {
      if (this.faded.strength !== strength) {
        const from = this.bare.data, pixels = new Float32Array(from.length);
        const kept = 1 - strength, light = 1 - SCALE.dimming * strength;
        for (let i = 0; i < from.length; i += 4) {
          const grey = 0.299 * from[i] + 0.587 * from[i + 1] + 0.114 * from[i + 2];
          for (let c = i; c < i + 3; c += 1) pixels[c] = (grey * strength + from[c] * kept) * light;
        }
        this.faded = { strength, pixels };
      }
      return this.faded.pixels;
    }

    /** `heat` has a number a cell, 1 at the top of the scale; `looked` is a window of cells, or null.
     * Without heat the photograph is bare. */
    paint(heat, strength, looked = null) {
      if (!this.bare) return;
      if (!heat) {
        this.pen.putImageData(this.bare, 0, 0);
        return;
      }
      const { width, height } = this.canvas, { rows, columns } = this.view;
      const { across, down } = this, faded = this.fade(strength);
      const opacity = Float32Array.from({ length: STEPS }, (_, step) => strength * Math.sqrt(step / 255));
      const painted = new ImageData(width, height), out = painted.data, line = new Float32Array(columns + 1);
      for (let y = 0, i = 0; y < height; y += 1) {
        const here = down.first[y] * columns, below = here + (rows > 1 ? columns : 0);
        const part = down.share[y];
        for (let c = 0; c < columns; c += 1) {
          line[c] = down.seen[y] ? part * heat[here + c] + (1 - part) * heat[below + c] : 0;
        }
        for (let x = 0; x < width; x += 1, i += 4) {
          const cell = across.first[x];
          const weight = across.seen[x]
            ? across.share[x] * line[cell] + (1 - across.share[x]) * line[cell + 1]
            : 0;
          const step = Math.min(STEPS - 1, Math.max(0, Math.round(weight * 255)));
          for (let c = 0; c < 3; c += 1) {
            out[i + c] = faded[i + c] + (palette[3 * step + c] - faded[i + c]) * opacity[step];
          }
          out[i + 3] = 255;
        }
      }
      this.pen.putImageData(painted, 0, 0);
      if (looked) this.frame(looked);
    }

    /** The photograph stays bare within a window of cells, in a frame. */
    frame(cells) {
      const [left, upper, right, lower] = this.box(cells);
      const width = right - left, height = lower - upper;
      if (width < 1 || height < 1) return;
      this.pen.putImageData(this.bare, 0, 0, left, upper, width, height);
      this.pen.lineWidth = 4;
      this.pen.strokeStyle = '#141414';
      this.pen.strokeRect(left - 2, upper - 2, width + 4, height + 4);
      this.pen.lineWidth = 2;
      this.pen.strokeStyle = '#fff';
      this.pen.strokeRect(left - 2, upper - 2, width + 4, height + 4);
    }

    /** Left, upper, right, lower of cells in pixels of the canvas. */
    box([left, upper, right, lower]) {
      const { seen, rows, columns } = this.view, { width, height } = this.canvas;
      const at = (start, stop, share, most) =>
        Math.min(Math.max(Math.round((start + (stop - start) * share) * this.zoom), 0), most);
      return [
        at(seen[0], seen[2], left / columns, width),
        at(seen[1], seen[3], upper / rows, height),
        at(seen[0], seen[2], right / columns, width),
        at(seen[1], seen[3], lower / rows, height),
      ];
    }
  }

  // --- one reading --------------------------------------------------------------------------------

  /** Shannon's entropy of a map, as a share of what a flat map has. */
  const entropy = (map) => {
    let bits = 0;
    for (const weight of map) if (weight > 0) bits -= weight * Math.log2(weight);
    return map.length > 1 ? bits / Math.log2(map.length) : 0;
  };

  class Reading {
    constructor(view, titled, stage) {
      Object.assign(this, { view, stage, caption: 0, map: 0, step: 1, heat: null });
      this.picture = new Picture(view);
      this.chips = make('div', { class: 'sa-chips', role: 'group', 'aria-label': 'Words of the caption' });
      this.note = make('div', { class: 'sa-note', 'aria-live': 'polite' });
      this.top = make('span');
      this.measured = make('span', { class: 'sa-faint' });
      this.heads = make('select', { 'aria-label': 'Layer and head', onchange: () => this.choose({ map: this.heads.selectedIndex }) });
      this.element = make('div', { class: 'sa-view' },
        titled ? make('div', { class: 'sa-heading' }, view.title) : '',
        make('div', { class: 'sa-picture' }, this.picture.canvas),
        make('div', { class: 'sa-scale' }, '0', make('span', { class: 'sa-ramp' }), this.top, this.measured, this.heads),
        this.chips, this.note);
      this.chips.addEventListener('pointerover', (event) => this.point(event));
      this.chips.addEventListener('pointerleave', () => this.stage.show(this.step, this));
      this.chips.addEventListener('focusin', (event) => { // by keyboard: a click pins by itself
        const chip = event.target.closest('[data-step]');
        if (chip?.matches(':focus-visible') && !this.stage.moving) this.stage.pin(Number(chip.dataset.step), this);
      });
      this.chips.addEventListener('click', (event) => {
        const chip = event.target.closest('[data-step]');
        if (chip) this.stage.pin(Number(chip.dataset.step), this);
      });
      this.choose({});
    }

    get said() { return this.view.captions[this.caption]; }
    get shown() { return this.said.maps[this.map]; }
    get steps() { return this.said.words.length + 1; }

    point(event) {
      const chip = event.target.closest('[data-step]');
      if (chip && event.pointerType !== 'touch') this.stage.show(Number(chip.dataset.step), this);
    }

    /** Another caption, or another head. */
    choose(changes) {
      Object.assign(this, changes);
      const { maps, words } = this.said, { rows, columns } = this.view;
      this.maps = maps.map((map) => {
        const weights = floats(map.weights);
        return words.map((_, t) => weights.subarray(t * rows * columns, (t + 1) * rows * columns));
      });
      this.heads.replaceChildren(...maps.map((map) => make('option', {}, map.name)));
      this.heads.selectedIndex = this.map;
      this.heads.hidden = maps.length < 2;
      this.top.textContent = this.shown.top.toPrecision(2);
      this.measured.textContent = `weight of one of ${rows} × ${columns} cells, one scale for all words`
        + (this.shown.windows ? '; framed: what was looked at' : '');
      this.chips.replaceChildren(
        make('button', { type: 'button', class: 'sa-chip sa-bare', 'data-step': 0 }, 'photograph'),
        ...words.map((word, t) => {
          const spread = entropy(this.maps[this.map][t]);
          return make('button', { type: 'button', class: 'sa-chip', 'data-step': t + 1, title: this.tell(t, spread) },
            word, make('span', { class: 'sa-spread', style: `--spread: ${100 * spread}%` }));
        }));
      this.stage.changed(this);
    }

    tell(t, spread) {
      const map = this.maps[this.map][t], { columns } = this.view, looked = this.shown.windows?.[t];
      let text;
      if (looked) {
        const held = map.reduce((sum, weight, cell) => {
          const x = cell % columns, y = Math.floor(cell / columns);
          return x >= looked[0] && x < looked[2] && y >= looked[1] && y < looked[3] ? sum + weight : sum;
        }, 0);
        text = `the framed part holds ${percent(held)}`;
      } else {
        const peak = map.indexOf(Math.max(...map));
        text = `the strongest cell (row ${Math.floor(peak / columns) + 1}, column ${(peak % columns) + 1}) `
          + `holds ${percent(map[peak])}`;
      }
      return `“${this.said.words[t]}”: ${text}; an even look gives each cell ${percent(1 / map.length)}. `
        + `Spread (entropy): ${percent(spread)} of an even look’s.`;
    }

    /** Step 0 is the bare photograph, step t + 1 the caption's word t. */
    show(step, strength) {
      const { map, shown } = this, there = step < this.steps;
      const chips = [...this.chips.children];
      chips.forEach((chip, i) => chip.setAttribute('aria-current', i === step));
      this.note.textContent = !there ? 'This caption has ended before.'
        : step ? chips[step].title : 'The photograph itself.';
      const words = this.said.words, name = there && step ? `Attention of “${words[step - 1]}”` : 'The photograph';
      this.picture.canvas.setAttribute('aria-label', `${name}; caption: ${this.said.text}`);
      const wanted = there && step ? this.maps[map][step - 1].map((weight) => weight / shown.top) : null;
      const looked = wanted ? shown.windows?.[step - 1] ?? null : null;
      this.fadeTo(wanted, looked, strength);
    }

    /** From what is shown to another heat, so that the eye can follow. */
    fadeTo(wanted, looked, strength) {
      const from = this.heat, began = performance.now();
      this.heat = wanted;
      cancelAnimationFrame(this.frame);
      if (!from || !wanted || from.length !== wanted.length || calm()) {
        this.picture.paint(wanted, strength, looked);
        return;
      }
      const draw = (now) => {
        const part = Math.min(1, Math.max(0, now - began) / FADE_MS);
        this.picture.paint(wanted.map((heat, cell) => part * heat + (1 - part) * from[cell]), strength, looked);
        if (part < 1) this.frame = requestAnimationFrame(draw);
      };
      draw(began);
    }

    /** The step of this caption that says the same word as another one's, or stands at its place. */
    alike(step, other) {
      const word = other.said.words[step - 1];
      const places = this.said.words.flatMap((own, t) => (own === word ? [t + 1] : []));
      const nearer = (best, place) => (Math.abs(place - step) < Math.abs(best - step) ? place : best);
      return places.length ? places.reduce(nearer) : step;
    }
  }

  // --- the folded parts ---------------------------------------------------------------------------

  /** Draws only once it is opened, and then at every change until it is closed. */
  const folded = (title, draw) => {
    const body = make('div', { class: 'sa-scroll' });
    const part = make('details', { class: 'sa-fold', ontoggle: () => redraw() },
      make('summary', { class: 'sa-heading' }, title), body);
    const redraw = () => { if (part.open) draw(body); };
    return { part, redraw };
  };

  const allWords = (reading, strength) => (body) => {
    body.replaceChildren(...reading.said.words.map((word, t) => {
      const picture = new Picture(reading.view, 200);
      picture.canvas.setAttribute('aria-label', `Attention of “${word}”`);
      const heat = reading.maps[reading.map][t].map((weight) => weight / reading.shown.top);
      const looked = reading.shown.windows?.[t] ?? null;
      picture.load().then(() => picture.paint(heat, strength(), looked));
      return make('figure', { class: 'sa-panel' }, make('figcaption', {}, word), picture.canvas);
    }));
    body.classList.add('sa-panels');
  };

  /** A row a word and a column for everything it may look at, one scale for all. */
  const matrix = (reading) => (body) => {
    const { rows, columns } = reading.view, { words } = reading.said;
    const told = make('div', { class: 'sa-faint', 'aria-live': 'polite' });
    const cells = table(words, reading.maps[reading.map], reading.shown.top, {
      frames: (t, cell) => {
        const looked = reading.shown.windows?.[t], x = cell % columns, y = Math.floor(cell / columns);
        return looked && x >= looked[0] && x < looked[2] && y >= looked[1] && y < looked[3];
      },
      point: (t, cell, weight) => {
        told.textContent = `“${words[t]}”, row ${Math.floor(cell / columns) + 1}, column ${(cell % columns) + 1}: ${percent(weight)}`;
        reading.stage.show(t + 1, reading);
      },
      ends: columns,
    });
    told.textContent = `Columns: the ${rows} × ${columns} cells, row by row from the top. Point at one.`;
    body.replaceChildren(cells, told);
  };

  const wordMatrix = (reading) => (body) => {
    const { words, heard } = reading.said;
    const map = heard[reading.map] ?? heard[0];
    const weights = floats(map.weights), read = ['START', ...words.slice(0, -1)];
    const told = make('div', { class: 'sa-faint', 'aria-live': 'polite' });
    const lines = words.map((_, t) => weights.subarray(t * words.length, (t + 1) * words.length));
    const cells = table(words, lines, 1, {
      frames: () => false,
      point: (t, column, weight) => {
        told.textContent = column > t ? 'That word is not read yet.'
          : `writing “${words[t]}”, “${read[column]}” holds ${percent(weight)}`;
      },
      ends: 0,
    });
    told.textContent = `${map.name}. Columns: the words read before, START first: ${read.join(' ')}`;
    body.replaceChildren(cells, told);
  };

  /** Of every gated place of the network the channels that it turned up and down the most. */
  const channels = (reading) => (body) => {
    const list = (pairs) => pairs.map(([channel, gate]) => `${channel} × ${gate.toFixed(2)}`).join(', ');
    body.replaceChildren(
      make('table', { class: 'sa-table' },
        make('thead', {}, make('tr', {}, ...['Where', 'Turned up', 'Turned down'].map((name) => make('th', { class: 'sa-words' }, name)))),
        make('tbody', {}, ...reading.view.channels.map(({ where, strongest, weakest }) =>
          make('tr', {}, ...[where, list(strongest), list(weakest)].map((text) => make('td', { class: 'sa-words' }, text)))))),
      make('p', { class: 'sa-faint' }, 'A channel’s number, and the factor (0 to 2) by which channel attention multiplies it; 1 changes nothing.'));
  };

  const table = (words, lines, top, { frames, point, ends }) => {
    const count = lines[0].length, high = 22, wide = Math.max(3, Math.min(36, Math.floor(760 / count)));
    const canvas = make('canvas', { width: count * wide, height: words.length * high, role: 'img', 'aria-label': 'Weights of all words' });
    const pen = canvas.getContext('2d');
    lines.forEach((line, t) => line.forEach((weight, cell) => {
      const step = Math.min(STEPS - 1, Math.round((255 * weight) / top));
      pen.fillStyle = `rgb(${palette.subarray(3 * step, 3 * step + 3).join(' ')})`;
      pen.fillRect(cell * wide, t * high, wide, high - 2);
      if (frames(t, cell)) {
        pen.strokeStyle = '#fff';
        pen.strokeRect(cell * wide + 0.5, t * high + 0.5, wide - 1, high - 3);
      }
    }));
    pen.fillStyle = 'rgb(128 128 128 / 0.5)';
    if (ends) for (let cell = ends; cell < count; cell += ends) pen.fillRect(cell * wide, 0, 1, canvas.height);
    canvas.addEventListener('pointermove', (event) => {
      const box = canvas.getBoundingClientRect();
      const cell = Math.floor(((event.clientX - box.left) / box.width) * count);
      const t = Math.floor(((event.clientY - box.top) / box.height) * words.length);
      if (lines[t]?.[cell] !== undefined) point(t, cell, lines[t][cell]);
    });
    const labels = make('div', { class: 'sa-rows' }, ...words.map((word) => make('span', {}, word)));
    return make('div', { class: 'sa-matrix' }, labels, canvas);
  };

  /** The captions of the beam; each is a button. */
  const beam = (reading, titled) => {
    const { captions, penalty, title } = reading.view;
    const rows = captions.map((caption, index) => make('tr', {},
      make('td', {}, `${index + 1}`),
      make('td', { class: 'sa-words' }, make('button', { type: 'button', onclick: () => reading.choose({ caption: index }) }, caption.text)),
      make('td', {}, caption.logProb.toFixed(2)),
      make('td', {}, caption.rank.toFixed(3))));
    const mark = () => rows.forEach((row, index) => row.setAttribute('aria-current', index === reading.caption));
    mark();
    const part = make('div', {},
      make('div', { class: 'sa-heading' }, `${titled ? `${title}: captions` : 'Captions'} that the beam found `,
        make('span', { class: 'sa-faint' }, 'Click one to see its words.')),
      make('table', { class: 'sa-table sa-captions' },
        make('thead', {}, make('tr', {}, ...['#', 'Caption', 'log p', 'normalised'].map((name, column) => make('th', { class: column === 1 && 'sa-words' }, name)))),
        make('tbody', {}, ...rows)),
      make('p', { class: 'sa-faint' },
        'log p is the natural logarithm of the caption’s probability; normalised is log p / (words + 1)',
        make('sup', {}, `${penalty}`), ', so that a caption does not lose by its length alone. The highest comes first.'));
    return { part, mark };
  };

  // --- readings side by side ----------------------------------------------------------------------

  class Stage {
    constructor(root, { views }) {
      this.strength = Stage.strength;
      const titled = views.length > 1;
      this.readings = [];
      this.folds = [];
      this.readings = views.map((view) => new Reading(view, titled, this));
      this.beams = this.readings.filter(({ view }) => view.captions.length > 1).map((reading) => ({ reading, ...beam(reading, titled) }));
      const name = (reading, what) => (titled ? `${reading.view.title}: ${what.toLowerCase()}` : what);
      this.folds = this.readings.flatMap((reading) => [
        { reading, ...folded(name(reading, 'All words at once'), allWords(reading, () => this.strength)) },
        { reading, ...folded(name(reading, 'Words by cells'), matrix(reading)) },
        ...(reading.view.channels.length ? [{ reading, ...folded(name(reading, 'Channels that fired'), channels(reading)) }] : []),
        ...(reading.said.heard.length ? [{ reading, ...folded(name(reading, 'Words by words'), wordMatrix(reading)) }] : []),
      ]);
      this.player = make('button', { type: 'button', onclick: () => (this.timer ? this.stop() : this.play(PLAY_MS)) }, '▶ Play');
      this.strengthen = make('input', {
        type: 'range', min: 0, max: 1, step: 0.05, value: this.strength,
        oninput: () => this.setStrength(Number(this.strengthen.value)),
      });
      root.replaceChildren(
        make('div', { class: 'sa-views' }, ...this.readings.map(({ element }) => element)),
        make('div', { class: 'sa-steps' },
          make('button', { type: 'button', 'data-move': -1, title: 'Left arrow key', onclick: () => this.move(-1) }, '‹ Previous'),
          this.player,
          make('button', { type: 'button', 'data-move': 1, title: 'Right arrow key', onclick: () => this.move(1) }, 'Next ›'),
          make('label', { title: 'How much of the photograph gives way to the colours' }, 'Overlay strength ', this.strengthen)),
        ...this.beams.map(({ part }) => part),
        ...this.folds.map(({ part }) => part));
      this.loaded = Promise.all(this.readings.map(({ picture }) => picture.load())).then(() => {
        root.dataset.ready = true;
        this.show(1);
        if (!calm()) this.tell();
      });
    }

    get steps() { return Math.max(...this.readings.map(({ steps }) => steps)); }
    get step() { return this.readings[0].step; }

    /** Lay a word open while it is pointed at; readings beside it show the same word where they
     * have it. */
    show(step, origin = this.readings[0]) {
      for (const reading of this.readings) {
        const own = reading === origin || !step ? step : reading.alike(step, origin);
        reading.at = own;
        reading.show(own, this.strength);
      }
    }

    /** Lay a word open for good. */
    pin(step, origin) {
      this.stop();
      this.show(step, origin);
      for (const reading of this.readings) reading.step = reading.at;
    }

    move(by) {
      const longest = this.readings.find(({ steps }) => steps === this.steps);
      this.pin((longest.step + by + this.steps) % this.steps, longest);
      const focused = this.readings.find(({ chips }) => chips.contains(document.activeElement));
      this.moving = true; // the focus goes along, and changes nothing by that
      focused?.chips.children[focused.step].focus();
      this.moving = false;
    }

    setStrength(strength) {
      this.strength = Stage.strength = strength;
      for (const reading of this.readings) reading.show(reading.at ?? 1, strength);
      this.folds.forEach(({ redraw }) => redraw());
    }

    /** A reading has another caption or head. */
    changed(reading) {
      if (!this.readings.length) return; // being built
      this.stop();
      this.beams.find((each) => each.reading === reading)?.mark();
      this.folds.filter((fold) => fold.reading === reading).forEach(({ redraw }) => redraw());
      reading.step = Math.min(reading.step, reading.steps - 1);
      reading.at = reading.step;
      reading.show(reading.step, this.strength);
    }

    /** The words appear one after the other. */
    tell() {
      const chips = this.readings.flatMap((reading) => [...reading.chips.children]);
      for (const chip of chips) chip.classList.toggle('sa-unsaid', Number(chip.dataset.step) > 1);
      this.play(SAID_MS, (step) => {
        for (const chip of chips) if (Number(chip.dataset.step) <= step) chip.classList.remove('sa-unsaid');
      });
    }

    play(every, also = () => {}) {
      const longest = this.readings.find(({ steps }) => steps === this.steps);
      let step = 1;
      const forward = () => {
        this.show(step, longest);
        also(step);
        for (const reading of this.readings) reading.step = reading.at;
        step += 1;
        if (step >= this.steps) this.stop();
      };
      clearInterval(this.timer);
      this.timer = setInterval(forward, every);
      this.player.textContent = '■ Stop';
      forward();
    }

    stop() {
      clearInterval(this.timer);
      this.timer = null;
      if (this.player) this.player.textContent = '▶ Play';
      for (const reading of this.readings) {
        for (const chip of reading.chips.children) chip.classList.remove('sa-unsaid');
      }
    }
  }
  Stage.strength = SCALE.strength; // as the visitor has set it last

  // --- what Gradio calls --------------------------------------------------------------------------

  const stages = {}; // by the viewer's name

  /** Once for each viewer; Gradio makes its inside anew before it tells of a new value. */
  const viewer = (element, props, watch) => {
    const draw = () => {
      const root = element.querySelector('.sa-viewer');
      stages[props.name]?.stop();
      delete stages[props.name];
      if (props.value) {
        stages[props.name] = new Stage(root, props.value);
        if (!element.closest('[hidden]')) element.scrollIntoView?.({ behavior: calm() ? 'auto' : 'smooth', block: 'nearest' });
      } else {
        root.innerHTML = props.hint; // the page's own words
      }
    };
    document.addEventListener('keydown', (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      const busy = event.target.closest?.('input, textarea, select, canvas[tabindex], [role="tab"], [role="dialog"]');
      const open = element.offsetParent !== null; // not on a tab that is closed
      if (move && stages[props.name] && open && !busy && !event.ctrlKey && !event.altKey && !event.metaKey) {
        stages[props.name].move(move);
      }
    });
    watch('value', draw);
    draw();
  };

  /** What lies open in the viewer of that name: the caption of each reading, and the strength. */
  const choice = (name) => {
    const stage = stages[name];
    return stage && { captions: stage.readings.map(({ caption }) => caption), strength: stage.strength };
  };

  /** Hand the visitor a file: {name, url}; null is none. */
  const save = (file) => {
    if (file) make('a', { href: file.url, download: file.name }).click();
  };

  return { viewer, choice, save, make, Picture };
})();
window.showattend = showattend;
