// Where the visitor says at which cells the model must look: a box is dragged, cells are clicked, or
// both by keyboard. Its value is what viewer.photograph tells, with the caption's words.

showattend.picker = (() => {
  const { make, Picture } = showattend;
  const picked = { rows: 0, columns: 0, cells: [] };

  class Picker {
    constructor(root, view, say) {
      Object.assign(this, { view, cursor: 0, from: null, cells: new Set() });
      this.picture = new Picture(view);
      this.canvas = this.picture.canvas;
      this.canvas.tabIndex = 0;
      this.canvas.className = 'sa-pick';
      this.told = make('div', { class: 'sa-note', 'aria-live': 'polite' });
      const words = view.words.map((word, t) => make('button', {
        type: 'button', class: 'sa-chip', title: `Begin the caption with all up to “${word}”, and change it below`,
        onclick: () => say(view.words.slice(0, t + 1).join(' ')),
      }, word));
      root.replaceChildren(
        make('div', { class: 'sa-picture' }, this.canvas), this.told,
        make('div', { class: 'sa-chips', role: 'group', 'aria-label': 'Words of the caption' }, ...words));
      this.picture.load().then(() => { root.dataset.ready = true; this.draw(); });
      this.listen();
    }

    listen() {
      const { canvas } = this;
      canvas.addEventListener('pointerdown', (event) => {
        this.from = this.at(event);
        this.before = new Set(this.cells);
        canvas.setPointerCapture(event.pointerId);
      });
      canvas.addEventListener('pointermove', (event) => {
        if (this.from === null) return;
        const to = this.at(event);
        if (to !== this.from || this.dragged) { // a box takes the place of what was chosen before
          this.dragged = true;
          this.choose(this.between(this.from, to));
        }
      });
      const end = (event) => {
        if (this.from !== null && !this.dragged) this.toggle(this.at(event));
        this.from = null;
        this.dragged = false;
      };
      canvas.addEventListener('pointerup', end);
      canvas.addEventListener('pointercancel', () => { this.from = null; this.dragged = false; });
      canvas.addEventListener('focus', () => this.draw());
      canvas.addEventListener('blur', () => this.draw());
      canvas.addEventListener('keydown', (event) => {
        const { rows, columns } = this.view, x = this.cursor % columns, y = Math.floor(this.cursor / columns);
        const to = {
          ArrowLeft: [Math.max(x - 1, 0), y], ArrowRight: [Math.min(x + 1, columns - 1), y],
          ArrowUp: [x, Math.max(y - 1, 0)], ArrowDown: [x, Math.min(y + 1, rows - 1)],
        }[event.key];
        if (to) {
          const [column, row] = to, cell = row * columns + column;
          if (event.shiftKey) { // as dragging does
            this.anchor ??= this.cursor;
            this.cursor = cell;
            this.choose(this.between(this.anchor, cell));
          } else {
            this.anchor = null;
            this.cursor = cell;
            this.draw();
          }
        } else if (event.key === ' ' || event.key === 'Enter') this.toggle(this.cursor);
        else if (event.key === 'Escape') this.choose(new Set());
        else return;
        event.preventDefault();
      });
    }

    /** The cell under the pointer, or the nearest one. */
    at(event) {
      const box = this.canvas.getBoundingClientRect(), { seen, rows, columns, width, height } = this.view;
      const x = ((event.clientX - box.left) / box.width) * width, y = ((event.clientY - box.top) / box.height) * height;
      const near = (place, start, stop, count) =>
        Math.min(Math.max(Math.floor(((place - start) / (stop - start)) * count), 0), count - 1);
      return near(y, seen[1], seen[3], rows) * columns + near(x, seen[0], seen[2], columns);
    }

    /** The cells of the box that two cells are corners of. */
    between(one, other) {
      const { columns } = this.view, cells = new Set();
      const [x0, x1] = [one % columns, other % columns].sort((a, b) => a - b);
      const [y0, y1] = [Math.floor(one / columns), Math.floor(other / columns)].sort((a, b) => a - b);
      for (let y = y0; y <= y1; y += 1) for (let x = x0; x <= x1; x += 1) cells.add(y * columns + x);
      return cells;
    }

    toggle(cell) {
      const cells = new Set(this.cells);
      if (!cells.delete(cell)) cells.add(cell);
      this.cursor = cell;
      this.choose(cells);
    }

    choose(cells) {
      this.cells = cells;
      picked.cells = [...cells].sort((a, b) => a - b);
      this.draw();
    }

    draw() {
      const { picture, canvas, cells } = this, { pen } = picture, { rows, columns } = this.view;
      if (!picture.bare) return;
      picture.paint(null);
      if (cells.size) { // what is not chosen gives way
        pen.fillStyle = 'rgb(0 0 0 / 0.62)';
        for (let cell = 0; cell < rows * columns; cell += 1) if (!cells.has(cell)) this.each(cell, 'fillRect');
      }
      pen.strokeStyle = 'rgb(255 255 255 / 0.35)';
      pen.lineWidth = 1;
      for (let cell = 0; cell < rows * columns; cell += 1) this.each(cell, 'strokeRect');
      if (document.activeElement === canvas) {
        pen.strokeStyle = '#fb923c';
        pen.lineWidth = 3;
        this.each(this.cursor, 'strokeRect');
      }
      const what = cells.size ? `The model must look at ${cells.size} of ${rows * columns} cells` : 'No region: the model looks where it likes';
      canvas.setAttribute('role', 'application');
      canvas.setAttribute('aria-label', 'Drag a box or click cells; by keyboard: arrows move, space chooses, shift and arrows choose a box, escape clears');
      this.told.textContent = `${what}. Drag a box, or click cells.`;
    }

    each(cell, how) {
      const { columns } = this.view, x = cell % columns, y = Math.floor(cell / columns);
      const [left, upper, right, lower] = this.picture.box([x, y, x + 1, y + 1]);
      this.picture.pen[how](left, upper, right - left, lower - upper);
    }
  }

  /** Once for the picker; `say` hands the words that were clicked to the page. */
  const picker = (element, props, watch, trigger) => {
    const draw = () => {
      const root = element.querySelector('.sa-picker');
      Object.assign(picked, { rows: props.value?.rows, columns: props.value?.columns, cells: [] });
      if (props.value) picker.now = new Picker(root, props.value, (words) => {
        trigger('select', { index: 0, value: words });
        document.querySelector('#sa-begin :is(textarea, input)')?.focus();
      });
      else root.innerHTML = props.hint;
    };
    watch('value', draw);
    draw();
  };
  picker.cells = () => picked;
  picker.clear = () => picker.now?.choose(new Set());
  return picker;
})();
