// The trained model of the book: what each head looks at in a text of the reader's, what may come next, and the cache that it writes with.
import { arriving, number, slider, step, words } from './figure.js';
import { bars, drawing, entries, picture, shape, text } from './draw.js';

const [BLOCKS, HEADS] = [4, 4];
const NAMES = Array.from({ length: BLOCKS * HEADS }, (_, i) => `${Math.floor(i / HEADS) + 1}.${i % HEADS + 1}`);
const [MOST_TYPED, MOST_WRITTEN] = [80, 100];
const [LINE, CELL] = [50, 12]; // letters of a line, and how wide each is

/** The numbers of the heads that are named. */
const heads = line => line.split(/[\s,]+/u).filter(name => name).map(name => {
    const head = NAMES.indexOf(name);
    if (head < 0) {
        throw new Error(`“${name}” is no head: write its block and its number in it, as in 2.1.`);
    }
    return head;
});

/** A letter as the page names it. */
const named = letter => letter === ' ' ? 'a space' : letter === '\n' ? 'a line’s end' : `“${letter}”`;

export default attention => {
    const arrived = arriving('writer', '../trained/book.i8', 'The model', async answer =>
        new attention.Writer(new Uint8Array(await answer.arrayBuffer())));
    return {
        controls: [
            words('text', 'a text to go on with', MOST_TYPED, 'the softmax of the sc'),
            slider('written', 'characters that the model writes', 0, MOST_WRITTEN, 1, 0, 0),
            step('head', 'head', NAMES, 4),
            slider('looker', 'the character that looks', 1, MOST_TYPED + MOST_WRITTEN, 1, MOST_TYPED + MOST_WRITTEN, 0),
            words('off', 'heads that are off, as in 2.1 2.2', 64, ''),
            slider('temperature', 'temperature', 0, 1.5, 0.1, 0.5),
            slider('seed', 'seed', 0, 50, 1, 0, 0),
        ],
        draw(state, set, again) {
            const model = arrived(again);
            if (!model) {
                return { says: 'The model is on its way.' };
            }
            const svg = drawing(640, 1120, 'A trained model: a text, the weights of its heads, the next character and the cache');
            const off = heads(state.off);
            const written = model.write(state.text, new Uint32Array(off), state.written, state.temperature, BigInt(state.seed));
            const letters = [...written.text];
            const n = letters.length;
            const [block, head] = [Math.floor(state.head / HEADS), state.head % HEADS];
            const looker = Math.min(state.looker, n) - 1;
            const weights = written.weights(block, head);
            const row = Array.from({ length: n }, (_, j) => entries(weights)(looker, j));

            svg.append(text(20, 14, `Where head ${NAMES[state.head]} looks, from the framed character; what the model wrote is underlined`, 'start'));
            letters.forEach((letter, j) => {
                const [x, y] = [20 + CELL * (j % LINE), 32 + 30 * Math.floor(j / LINE)];
                const cell = shape('g', { class: 'press' });
                cell.append(
                    shape('rect', { x, y, width: CELL, height: 24, fill: 'var(--fig-heat)', 'fill-opacity': row[j] }),
                    text(x + CELL / 2, y + 12, letter === '\n' ? '↵' : letter, 'middle', row[j] > 0.6 ? 'var(--fig-bg)' : 'var(--fig-fg)'),
                );
                if (j >= n - state.written) {
                    cell.append(shape('line', { x1: x, x2: x + CELL, y1: y + 26, y2: y + 26, stroke: 'var(--fig-2)', 'stroke-width': 2 }));
                }
                if (j === looker) {
                    cell.append(shape('rect', { x, y, width: CELL, height: 24, fill: 'none', stroke: 'var(--fig-fg)', 'stroke-width': 2 }));
                }
                cell.addEventListener('click', () => set({ looker: j + 1 }));
                svg.append(cell);
            });

            NAMES.forEach((name, i) => {
                const [left, top] = [20 + 154 * (i % HEADS), 186 + 164 * Math.floor(i / HEADS)];
                const isOff = off.includes(i);
                const map = shape('g', { class: 'press' });
                map.append(
                    text(left, top - 12, isOff ? `${name} is off` : name, 'start', i === state.head ? 'var(--fig-2)' : 'var(--fig-fg)'),
                    shape('rect', {
                        x: left, y: top, width: 136, height: 136, fill: 'var(--fig-bg)',
                        stroke: i === state.head ? 'var(--fig-2)' : 'var(--fig-muted)', 'stroke-width': i === state.head ? 2.5 : 1,
                    }),
                );
                if (!isOff) {
                    picture(map, { left, top, width: 136, height: 136, matrix: written.weights(Math.floor(i / HEADS), i % HEADS) });
                }
                map.addEventListener('click', () => set({ head: i }));
                svg.append(map);
            });

            const [likely, chances] = [written.nextCharacters, written.nextProbabilities];
            svg.append(text(20, 834, 'What may come next', 'start'));
            bars(svg, {
                left: 120, top: 848, width: 420, row: 24, most: 1, labels: likely.slice(0, 5).map(named), values: [...chances.slice(0, 5)],
            });

            const keys = written.keys(block);
            svg.append(text(20, 986, `The keys in the cache of block ${block + 1}: a column for each character, a row for each number`, 'start'));
            picture(svg, {
                left: 20, top: 1002, width: 600, height: 96, matrix: keys, turned: true, full: Math.max(...keys.entries.map(Math.abs)),
            });

            const most = row.map((weight, j) => [weight, j]).sort(([a], [b]) => b - a).slice(0, 2);
            const told = most.map(([weight, j]) => `${number(weight, 2)} on ${named(letters[j])}, ${j === looker ? 'itself' : `${looker - j} back`}`);
            const says = `Head ${NAMES[state.head]}, from ${named(letters[looker])}, character ${looker + 1}: ${told.join('; ')}. `
                + `The text costs ${number(written.surprise, 2)} nats a character. `
                + `The caches hold ${2 * BLOCKS * keys.entries.length} numbers of ${n} characters.`;
            return { svg, says, limits: { looker: n } };
        },
    };
};
