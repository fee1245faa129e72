// What all figures that move share: a drawing, a clock, controls below or beside it, a sentence that says what is to be seen, undo and reset, and a
// state that stands in the address of the page.

/** The controls of a figure. A slider goes from `least` to `most`; a choice has `options`. */
export const slider = (name, label, least, most, step, value, digits = 1) =>
    ({ kind: 'slider', name, label, least, most, step, value, digits });
/** A line of words, at most so many letters; an underscore is a blank, since it parts the values in an address. A live one counts as it is typed. */
export const words = (name, label, most, value, { isLive = false } = {}) => ({ kind: 'words', name, label, most, value, isLive });
export const choice = (name, label, options, value = 0) => ({ kind: 'choice', name, label, options, value });
/** A choice whose options come one after the other, with buttons for the previous and the next one. */
export const step = (...parts) => ({ ...choice(...parts), isStep: true });
/**
 * What plays: a time from 0 to `most`, or to a limit of the state, in so many `seconds`. `moments` are those that matter, for a state: each
 * with its time and a name. A step goes to the next `stop`; with reduced motion, playing is stepping.
 */
export const time = (name, label, most, value, { seconds, stop = 1, moments = () => [] }) =>
    ({ kind: 'time', name, label, least: 0, most, step: TICK * stop, value, seconds, stop, moments });
/** A control that few need is folded away. */
export const rare = control => ({ ...control, isRare: true });

/** The smallest part of a stop. */
const TICK = 0.02;
const SPEEDS = [['½ ×', 0.5], ['1 ×', 1], ['2 ×', 2]];
/** With reduced motion, the milliseconds from one stop to the next at the usual speed. */
const REST = 1500;

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

/** A number with so many digits and its power of ten, as in 3.1 · 10⁻³. */
export const scientific = (x, digits) => {
    const [factor, power] = x.toExponential(digits - 1).split('e');
    return `${factor} · 10${[...power.replace('+', '')].map(c => c === '-' ? '⁻' : '⁰¹²³⁴⁵⁶⁷⁸⁹'[c]).join('')}`;
};

/** A function that remembers its last result: while a figure plays, most of what it shows stays. */
export const remembered = compute => {
    let [asked, result] = [];
    return (...given) => {
        const key = JSON.stringify(given);
        if (key !== asked) {
            [asked, result] = [key, compute(...given)];
        }
        return result;
    };
};

/**
 * What a figure `reads` from a file beside the page's module, which comes when the figure is near the window. The function that this returns
 * has nothing before that, and draws again when it is there.
 */
export const arriving = (figure, file, what, reads) => {
    let result, fault;
    let isAsked = false;
    return again => {
        if (fault) {
            throw new Error(fault);
        }
        if (!isAsked) {
            isAsked = true;
            new IntersectionObserver(async (seen, observer) => {
                if (!seen.some(({ isIntersecting }) => isIntersecting)) {
                    return;
                }
                observer.disconnect();
                try {
                    const answer = await fetch(new URL(file, import.meta.url));
                    if (!answer.ok) {
                        throw new Error(answer.statusText);
                    }
                    result = await reads(answer);
                } catch (error) {
                    fault = `${what} can't be fetched: ${error.message}.`;
                }
                again();
            }, { rootMargin: '200px' }).observe(document.querySelector(`[data-figure=${figure}]`));
        }
        return result;
    };
};

/** The clock of the page: one figure plays at a time. */
const clock = {
    figure: undefined,
    start(figure) {
        this.stop();
        this.figure = figure;
        let [last, rested] = [performance.now(), 0];
        const frame = now => {
            if (this.figure !== figure) {
                return;
            }
            // Where a page was out of sight, it goes on where it was.
            const passed = Math.min(now - last, 100) * figure.speed;
            last = now;
            if (matchMedia('(prefers-reduced-motion: reduce)').matches) {
                rested += passed;
                if (rested >= REST) {
                    rested = 0;
                    figure.toStop(1);
                }
            } else {
                figure.pass(passed / 1000);
            }
            requestAnimationFrame(frame);
        };
        requestAnimationFrame(frame);
    },
    stop() {
        const { figure } = this;
        this.figure = undefined;
        figure?.rest();
    },
};

export class Figure {
    /**
     * @param {HTMLElement} figure the <figure>; its drawing is the first one that this figure draws
     * @param {string} name unique on the page, and the name of its state in the address
     * @param {{
     *     controls: object[],
     *     draw: (state: object, set: (changes: object, moves?: boolean) => void, again: () => void) => {svg?: SVGElement, says: string, limits?: object},
     *     copies?: {label: string, text: (state: object) => string}[],
     *     isPlain?: boolean,
     * }} kind what it is made of. A plain one has no undo and reset. `limits` are the ends of sliders in this state. `again` draws once more, when something has arrived that was missing for an `svg`. An error that `draw` throws is told in place of what there is to see, and the last drawing stays, faded.
     */
    constructor(figure, name, kind) {
        this.figure = figure;
        this.name = name;
        this.kind = kind;
        this.initial = Object.fromEntries(kind.controls.map(control => [control.name, control.value]));
        this.state = { ...this.initial, ...this.fromAddress() };
        this.past = [];
        this.fields = new Map();
        this.speed = 1;

        const still = figure.querySelector('svg');
        const label = still.querySelector('title').textContent;
        this.drawing = element('div', { class: 'drawing' });
        this.says = element('div', { class: 'says', role: 'status' });
        this.panel = element('form', { class: 'panel', 'aria-label': label });
        this.panel.addEventListener('submit', event => event.preventDefault());
        const [times, others] = [true, false].map(isTime => kind.controls.filter(({ kind }) => (kind === 'time') === isTime));
        const rarely = others.filter(({ isRare }) => isRare).map(control => this.field(control));
        const fold = rarely.length ? [element('details', {}, element('summary', {}, 'More controls'), ...rarely)] : [];
        if (others.some(({ isRare, name }) => isRare && this.state[name] !== this.initial[name])) {
            fold[0].open = true; // the address has a state that it shows
        }
        this.undoButton = this.button('Undo', () => this.undo());
        this.resetButton = this.button('Reset', () => this.set(this.initial));
        const copies = (kind.copies ?? []).map(({ label, text }) => this.copyButton(label, text));
        this.panel.append(
            ...times.map(control => this.timeLine(control)), this.says,
            element('div', { class: 'controls' }, ...others.filter(({ isRare }) => !isRare).map(control => this.field(control)), ...fold),
            ...kind.isPlain ? [] : [element('div', { class: 'buttons' }, this.undoButton, this.resetButton, ...copies)],
        );
        this.panel.addEventListener('keydown', event => {
            if (event.key === 'z' && (event.ctrlKey || event.metaKey) && event.target.type !== 'text') {
                event.preventDefault();
                this.undo();
            }
        });
        still.before(this.drawing);
        this.drawing.append(still);
        figure.append(this.panel);
        this.show();
        figure.classList.add('moving');
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
            const change = moves => this.set({ [control.name]: input.value.replaceAll('_', ' ') }, moves);
            input.addEventListener('change', () => {
                change(control.isLive);
                this.moving = undefined;
            });
            if (control.isLive) {
                input.addEventListener('input', () => change(true));
            }
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

    /** Play, a step back and one forth, the time itself with its moments, and the speed. */
    timeLine(control) {
        const { name, label, least, step } = control;
        const id = `${this.name}-${name}`;
        const input = element('input', { id, type: 'range', min: least, step, 'aria-label': label });
        input.addEventListener('input', () => {
            clock.stop();
            this.set({ [name]: Number(input.value) }, true);
        });
        input.addEventListener('change', () => { this.moving = undefined; });
        input.addEventListener('keydown', event => {
            const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
            if (by) {
                event.preventDefault();
                clock.stop();
                this.toStop(by);
            }
        });
        const stepBy = (sign, name, by) => {
            const button = this.button(sign, () => {
                clock.stop();
                this.toStop(by);
            });
            button.setAttribute('aria-label', `${name}: ${label}`);
            return button;
        };
        this.time = control;
        this.moments = remembered(control.moments);
        this.playButton = this.button('Play', () => clock.figure === this ? clock.stop() : this.play());
        this.playButton.className = 'play';
        const speed = element('select', { 'aria-label': 'speed' }, ...SPEEDS.map(([text, by]) => element('option', { value: by }, text)));
        speed.value = this.speed;
        speed.addEventListener('change', () => { this.speed = Number(speed.value); });
        const marks = element('div', { class: 'moments', 'aria-hidden': 'true' });
        this.fields.set(name, { control, input, marks });
        // What plays out of sight is not seen.
        new IntersectionObserver(seen => {
            if (clock.figure === this && !seen.some(({ isIntersecting }) => isIntersecting)) {
                clock.stop();
            }
        }).observe(this.drawing);
        return element('div', { class: 'time' },
            this.playButton, stepBy('‹', 'Step back', -1), stepBy('›', 'Step', 1), element('div', { class: 'line' }, input, marks), speed);
    }

    /** The last time in this state. */
    get end() {
        return Number(this.fields.get(this.time.name).input.max);
    }

    play() {
        const { name } = this.time;
        this.moving = undefined;
        if (this.state[name] >= this.end) {
            this.set({ [name]: 0 }, true);
        }
        this.playButton.textContent = 'Pause';
        // A screen reader would not come to the end of a sentence.
        this.says.setAttribute('aria-live', 'off');
        this.exact = this.state[name];
        clock.start(this);
    }

    /** Lets some seconds pass. */
    pass(seconds) {
        const { name, step } = this.time;
        this.exact += this.end * seconds / this.time.seconds;
        this.set({ [name]: Math.min(Number((Math.round(this.exact / step) * step).toFixed(4)), this.end) }, true);
        if (this.exact >= this.end) {
            clock.stop();
        }
    }

    rest() {
        this.playButton.textContent = 'Play';
        this.says.removeAttribute('aria-live');
        this.moving = undefined;
    }

    /** To the next stop, or with −1 to the last one. */
    toStop(by) {
        const { name, stop } = this.time;
        const at = this.state[name] / stop;
        const next = stop * (by > 0 ? Math.floor(at + 1) : Math.ceil(at - 1));
        this.set({ [name]: Math.min(Math.max(next, 0), this.end) }, clock.figure === this);
        if (clock.figure === this && this.state[name] >= this.end) {
            clock.stop();
        }
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
        this.changed = Object.keys(changes);
        this.show();
        this.toAddress();
    }

    undo() {
        const last = this.past.pop();
        if (last) {
            clock.stop();
            this.state = last;
            this.show();
            this.toAddress();
        }
    }

    show() {
        for (const [name, { control, input, output }] of this.fields) {
            const value = this.state[name];
            if (control.most) {
                input.max = control.most;
            }
            input.value = value;
            if (control.kind === 'slider') {
                output.value = number(value, control.digits);
                input.setAttribute('aria-valuetext', output.value);
            }
            input.removeAttribute('aria-invalid');
        }
        let refused = false;
        try {
            const { svg, says, limits = {} } = this.kind.draw(this.state, (...change) => this.set(...change), () => this.show());
            this.limit(limits);
            if (svg) {
                this.drawing.replaceChildren(svg);
            }
            this.tell(says);
        } catch (error) {
            refused = true;
            this.tell(error.message);
            this.changed?.forEach(name => this.fields.get(name).input.setAttribute('aria-invalid', 'true'));
        }
        this.figure.classList.toggle('refused', refused);
        if (this.time) {
            this.showTime();
        }
        // Not disabled, or the focus would be lost with the last step back.
        this.undoButton.setAttribute('aria-disabled', this.past.length === 0);
        this.resetButton.setAttribute('aria-disabled', JSON.stringify(this.state) === JSON.stringify(this.initial));
    }

    tell(says) {
        if (this.says.textContent !== says) {
            this.says.textContent = says;
        }
    }

    showTime() {
        const { name, stop } = this.time;
        const { input, marks } = this.fields.get(name);
        const now = this.state[name];
        const at = this.moments({ ...this.state, [name]: 0 });
        const names = at.filter(([time]) => time <= now).map(([, name]) => name);
        input.setAttribute('aria-valuetext', `${number(now / stop, 0)} of ${number(this.end / stop, 0)}${names.length ? `, ${names.at(-1)}` : ''}`);
        const told = JSON.stringify([this.end, at]);
        if (this.marked !== told) {
            this.marked = told;
            marks.replaceChildren(...at.map(([time, name]) => element('i', { style: `--at: ${time / this.end}`, title: name })));
        }
    }

    limit(limits) {
        for (const [name, limit] of Object.entries(limits)) {
            const { control, input, output } = this.fields.get(name);
            input.max = limit;
            input.value = this.state[name];
            if (output) {
                output.value = number(Math.min(this.state[name], limit), control.digits);
            }
        }
    }

    /** The button says what has become of a press, for a while. */
    copyButton(label, text) {
        const button = this.button(label, async () => {
            this.writeAddress();
            let told = 'Copied';
            try {
                await navigator.clipboard.writeText(text(this.state));
            } catch (error) {
                told = `Not copied: ${error.message}`;
            }
            button.textContent = told;
            setTimeout(() => { button.textContent = label; }, 2000);
        });
        return button;
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
        const isStep = ({ least, most, step }, value) =>
            value >= least && value <= most && Math.abs((value - least) / step - Math.round((value - least) / step)) < 1e-6;
        const fits = (control, value) => ({
            slider: () => isStep(control, value),
            time: () => isStep(control, value),
            words: () => value.length <= control.most,
            choice: () => Number.isInteger(value) && value >= 0 && value < control.options.length,
        })[control.kind]();
        const all = controls.every((control, i) => fits(control, values[i]));
        return all ? Object.fromEntries(controls.map((control, i) => [control.name, values[i]])) : {};
    }
}

/** The address of a figure as it is: the page opens there. */
export const addressOf = name => {
    const address = new URL(location);
    address.hash = document.querySelector(`[data-figure=${name}]`).id;
    return address.href;
};
