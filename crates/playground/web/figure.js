// What all figures that move share: a drawing, controls below it, a sentence that says what is to be seen, undo and reset, and a state
// that stands in the address of the page.

/** The controls of a figure. A slider goes from `least` to `most`; a choice has `options`. */
export const slider = (name, label, least, most, step, value, digits = 1) =>
    ({ kind: 'slider', name, label, least, most, step, value, digits });
/** A line of words, at most so many letters; an underscore is a blank, since it parts the values in an address. */
export const words = (name, label, most, value) => ({ kind: 'words', name, label, most, value });
export const choice = (name, label, options, value = 0) => ({ kind: 'choice', name, label, options, value });
/** A control that stands after another one, and last in an address. */
export const after = (name, control) => ({ ...control, after: name });
/** A choice whose options come one after the other, with buttons for the previous and the next one. */
export const step = (...parts) => ({ ...choice(...parts), isStep: true });

const element = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
        made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
};

/** A number as the book prints it; one that is rounded to zero has no sign. */
export const number = (x, digits) => x.toFixed(digits).replace(/^-(?=0(\.0*)?$)/u, '').replace('-', '−');

export class Figure {
    /**
     * @param {HTMLElement} figure the <figure>, with its drawing for those who run no scripts
     * @param {string} name unique on the page, and the name of its state in the address
     * @param {{
     *     controls: object[],
     *     draw: (state: object, set: (changes: object) => void, again: () => void) => {svg: SVGElement, says: string, limits?: object},
     *     copies?: {label: string, text: (state: object) => string}[],
     * }} kind what it is made of. `limits` are the ends of sliders in this state. `again` draws once more, when something has arrived. An error that `draw` throws is told in place of what there is to see, and the last drawing stays.
     */
    constructor(figure, name, kind) {
        this.name = name;
        this.kind = kind;
        this.initial = Object.fromEntries(kind.controls.map(control => [control.name, control.value]));
        this.state = { ...this.initial, ...this.fromAddress() };
        this.past = [];
        this.fields = new Map();

        const still = figure.querySelector('svg');
        still.classList.add('still');
        this.drawing = element('div', { class: 'drawing' });
        this.says = element('div', { class: 'says', role: 'status' });
        const panel = element('form', { class: 'controls', 'aria-label': still.querySelector('title').textContent });
        panel.addEventListener('submit', event => event.preventDefault());
        const shown = [];
        for (const control of kind.controls) {
            const before = shown.findIndex(({ name }) => name === control.after);
            shown.splice(before < 0 ? shown.length : before + 1, 0, control);
        }
        panel.append(...shown.map(control => this.field(control)));
        this.undoButton = this.button('Undo', () => this.undo());
        this.resetButton = this.button('Reset', () => this.set(this.initial));
        const copies = (kind.copies ?? []).map(({ label, text }) => this.button(label, () => this.copy(() => text(this.state))));
        panel.append(element('div', { class: 'buttons' }, this.undoButton, this.resetButton, ...copies));
        panel.addEventListener('keydown', event => {
            if (event.key === 'z' && (event.ctrlKey || event.metaKey) && event.target.type !== 'text') {
                event.preventDefault();
                this.undo();
            }
        });
        still.after(this.drawing, this.says, panel);
        figure.classList.add('moving');
        this.show();
    }

    button(text, press) {
        const button = element('button', { type: 'button' }, text);
        button.addEventListener('click', press);
        return button;
    }

    stepButton({ name, label, options }, which, sign, by) {
        const button = this.button(sign, () =>
            this.set({ [name]: Math.min(Math.max(this.state[name] + by, 0), options.length - 1) }));
        button.setAttribute('aria-label', `${which}: ${label}`);
        return button;
    }

    field(control) {
        const id = `${this.name}-${control.name}`;
        const label = element('label', { for: id }, control.label);
        let input;
        const output = control.isStep ? element('span') : element('output', { for: id });
        if (control.kind === 'slider') {
            const { least, most, step } = control;
            input = element('input', { id, type: 'range', min: least, max: most, step });
            input.addEventListener('input', () => this.set({ [control.name]: Number(input.value) }, true));
            // Where a move ends, the next one is another step for undo.
            input.addEventListener('change', () => { this.moving = undefined; });
        } else if (control.kind === 'words') {
            input = element('input', { id, type: 'text', maxlength: control.most, spellcheck: 'false', autocomplete: 'off' });
            input.addEventListener('change', () => this.set({ [control.name]: input.value.replaceAll('_', ' ') }));
        } else {
            input = element('select', { id }, ...control.options.map((text, i) => element('option', { value: i }, text)));
            input.addEventListener('change', () => this.set({ [control.name]: Number(input.value) }));
        }
        if (control.isStep) {
            output.append(this.stepButton(control, 'Previous', '‹', -1), this.stepButton(control, 'Next', '›', 1));
            output.classList.add('steps');
        }
        this.fields.set(control.name, { control, input, output });
        return element('div', { class: 'field' }, label, input, output);
    }

    /** Changes the state. While a slider moves, all its changes are one step for undo. */
    set(changes, moves = false) {
        const next = { ...this.state, ...changes };
        if (JSON.stringify(next) === JSON.stringify(this.state)) {
            return;
        }
        const moving = moves ? Object.keys(changes)[0] : undefined;
        if (!moving || moving !== this.moving) {
            this.past.push(this.state);
        }
        this.moving = moving;
        this.state = next;
        this.show();
        this.toAddress();
    }

    undo() {
        const last = this.past.pop();
        if (last) {
            this.moving = undefined;
            this.state = last;
            this.show();
            this.toAddress();
        }
    }

    show() {
        for (const [name, { control, input, output }] of this.fields) {
            if (control.kind === 'slider') {
                input.max = control.most;
            }
            input.value = this.state[name];
            if (control.kind === 'slider') {
                output.value = number(this.state[name], control.digits);
                input.setAttribute('aria-valuetext', output.value);
            }
        }
        try {
            const { svg, says, limits = {} } = this.kind.draw(this.state, changes => this.set(changes), () => this.show());
            this.limit(limits);
            this.drawing.replaceChildren(svg);
            this.says.textContent = says;
        } catch (error) {
            this.says.textContent = error.message;
        }
        // Not disabled, or the focus would be lost with the last step back.
        this.undoButton.setAttribute('aria-disabled', this.past.length === 0);
        this.resetButton.setAttribute('aria-disabled', JSON.stringify(this.state) === JSON.stringify(this.initial));
    }

    limit(limits) {
        for (const [name, limit] of Object.entries(limits)) {
            const { control, input, output } = this.fields.get(name);
            input.max = limit;
            output.value = number(Math.min(this.state[name], limit), control.digits);
        }
    }

    async copy(text) {
        this.writeAddress();
        try {
            await navigator.clipboard.writeText(text());
            this.says.textContent = 'Copied.';
        } catch (error) {
            this.says.textContent = `Nothing was copied: ${error.message}`;
        }
    }

    /** A browser takes longer to change the address than to draw, and some refuse it at each step of a slider: so it waits for a rest. */
    toAddress() {
        clearTimeout(this.resting);
        this.resting = setTimeout(() => this.writeAddress(), 150);
    }

    /** The state is a list of numbers and words, in the order of the controls. An address may leave out the last ones. */
    writeAddress() {
        const address = new URL(location);
        const values = this.kind.controls.map(control => this.state[control.name]).join('_');
        if (JSON.stringify(this.state) === JSON.stringify(this.initial)) {
            address.searchParams.delete(this.name);
        } else {
            address.searchParams.set(this.name, values);
        }
        history.replaceState(history.state, '', address);
    }

    fromAddress() {
        const { controls } = this.kind;
        const given = new URL(location).searchParams.get(this.name)?.split('_') ?? [];
        if (given.length > controls.length) {
            return {};
        }
        given.push(...controls.slice(given.length).map(({ value }) => value));
        const values = controls.map(({ kind }, i) => kind === 'words' ? given[i] : Number(given[i] === '' ? NaN : given[i]));
        const fits = ({ kind, least, most, step, options }, value) => ({
            slider: () => value >= least && value <= most && Math.abs((value - least) / step - Math.round((value - least) / step)) < 1e-6,
            words: () => value.length <= most,
            choice: () => Number.isInteger(value) && value >= 0 && value < options.length,
        })[kind]();
        const all = controls.every((control, i) => fits(control, values[i]));
        return all ? Object.fromEntries(controls.map((control, i) => [control.name, values[i]])) : {};
    }
}
