// The trained model of the book: what each head looks at in a text of the reader's, what may come next, and the cache that it writes with.
import { arriving, number, rare, slider, step, words } from './figure.js';
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

/** So many of the maps are drawn in a frame: all of them would take longer than a frame has. */
const EACH = 2;

export default attention => {
    const arrived = arriving('writer', '../trained/book.i8', 'The model', async answer =>
        new attention.Writer(new Uint8Array(await answer.arrayBuffer())));
    // The text that is being read or written, a character a frame; and the maps, each with what it was drawn for.
    let session = {};
    const maps = Array.from({ length: NAMES.length + 2 }, () => ({ group: shape('g') }));
    let turn = 0; // the map that is next
    let isBegun = false; // until then the still drawing is shown
    const begin = (model, key, text, off, seed) => {
        const written = model.begin(text, new Uint32Array(off), BigInt(seed));
        session.written?.free();
        session = { key, written, count: 0 };
    };
    return {
        controls: [
            words('text', 'a text to go on with', MOST_TYPED, 'the softmax of the sc', { isLive: true }),
            slider('written', 'characters that the model writes', 0, MOST_WRITTEN, 1, 0, 0),
            step('head', 'head', NAMES, 4),
            rare(slider('looker', 'the character that looks', 1, MOST_TYPED + MOST_WRITTEN, 1, MOST_TYPED + MOST_WRITTEN, 0)),
            rare(words('off', 'heads that are off, as in 2.1 2.2', 64, '')),
            rare(slider('temperature', 'temperature', 0, 1.5, 0.1, 0.5)),
            rare(slider('seed', 'seed', 0, 50, 1, 0, 0)),
        ],
        draw(state, set, again) {
            const model = arrived(again);
            if (!model) {
                return { says: 'The model is on its way.' };
            }
            const off = heads(state.off);
            const key = JSON.stringify([state.text, off, state.seed, state.temperature]);
            const most = [...state.text].length + state.written;
            if (key !== session.key || session.count > most) {
                begin(model, key, state.text, off, state.seed);
            }
            const { written } = session;
            if (session.count < most) {
                written.goOn(state.temperature);
                session.count += 1;
            }
            const n = session.count;
            const svg = drawing(640, 676, 'A trained model: a text, the weights of its heads, the next character and the cache');
            const letters = [...written.text];
            const [block, head] = [Math.floor(state.head / HEADS), state.head % HEADS];
            const looker = Math.min(state.looker, n) - 1;
            const weights = entries(written.weights(block, head));
            const row = Array.from({ length: n }, (_, j) => weights(looker, j));

            svg.append(text(20, 14, `Where head ${NAMES[state.head]} looks, from the framed character; what the model wrote is underlined`, 'start'));
            letters.forEach((letter, j) => {
                const [x, y] = [20 + CELL * (j % LINE), 32 + 30 * Math.floor(j / LINE)];
                const cell = shape('g', { class: 'press' });
                cell.append(
                    shape('rect', { x, y, width: CELL, height: 24, fill: 'var(--fig-heat)', 'fill-opacity': Math.sqrt(row[j]).toFixed(3) }),
                    text(x + CELL / 2, y + 12, letter === '\n' ? '↵' : letter),
                );
                if (j >= [...state.text].length) {
                    cell.append(shape('line', { x1: x, x2: x + CELL, y1: y + 26, y2: y + 26, stroke: 'var(--fig-2)', 'stroke-width': 2 }));
                }
                if (j === looker) {
                    cell.append(shape('rect', { x, y, width: CELL, height: 24, fill: 'none', stroke: 'var(--fig-fg)', 'stroke-width': 2 }));
                }
                cell.addEventListener('click', () => set({ looker: j + 1 }));
                svg.append(cell);
            });

            // The chosen map large, sixteen small ones, and the cache.
            const frame = (group, i, left, top, size) => {
                const isChosen = i === state.head;
                group.append(shape('rect', {
                    x: left, y: top, width: size, height: size, fill: 'var(--fig-bg)', stroke: isChosen ? 'var(--fig-2)' : 'var(--fig-muted)',
                    'stroke-width': isChosen ? 2.5 : 1,
                }));
                if (!off.includes(i)) {
                    picture(group, { left, top, width: size, height: size, matrix: written.weights(Math.floor(i / HEADS), i % HEADS), curve: Math.sqrt });
                }
            };
            const keys = written.keys(block);
            const draws = [
                group => frame(group, state.head, 20, 178, 270),
                ...NAMES.map((_, i) => group => frame(group, i, 316 + 78 * (i % HEADS), 178 + 80 * Math.floor(i / HEADS), 62)),
                group => picture(group, {
                    left: 316, top: 512, width: 296, height: 120, matrix: keys, turned: true, full: Math.max(...keys.entries.map(Math.abs)),
                }),
            ];
            const isOld = ({ drawnFor }) => drawnFor !== session.key + n + NAMES[state.head];
            for (let drawn = 0; drawn < EACH && maps.some(isOld); turn = (turn + 1) % maps.length) {
                const map = maps[turn];
                if (isOld(map)) {
                    const which = turn;
                    const isSmall = which > 0 && which <= NAMES.length;
                    map.group = shape('g', isSmall ? { class: 'press' } : {});
                    map.drawnFor = session.key + n + NAMES[state.head];
                    draws[which](map.group);
                    if (isSmall) {
                        map.group.addEventListener('click', () => set({ head: which - 1 }));
                    }
                    drawn += 1;
                }
            }
            svg.append(...maps.map(({ group }) => group));
            NAMES.forEach((name, i) => svg.append(text(
                316 + 78 * (i % HEADS), 170 + 80 * Math.floor(i / HEADS), off.includes(i) ? `${name} off` : name, 'start', i === state.head ? 'var(--fig-2)' : 'var(--fig-fg)',
            )));
            const isReady = n === most && !maps.some(isOld);
            if (!isReady) {
                requestAnimationFrame(() => session.written === written && session.count === n && again());
            }

            const [likely, chances] = [written.nextCharacters, written.nextProbabilities];
            svg.append(text(20, 496, 'What may come next', 'start'));
            bars(svg, {
                left: 90, top: 510, width: 150, row: 24, most: 1, labels: likely.slice(0, 5).map(named), values: [...chances.slice(0, 5)],
                colour: () => 'var(--fig-1)',
            });
            svg.append(text(316, 496, `The keys in block ${block + 1}’s cache:`, 'start'), text(316, 650, 'a column a character, a row a number', 'start', 'var(--fig-muted)'));

            const looked = row.map((weight, j) => [weight, j]).sort(([a], [b]) => b - a).slice(0, 2);
            const told = looked.map(([weight, j]) => `${number(weight, 2)} on ${named(letters[j])}, ${j === looker ? 'itself' : `${looker - j} back`}`);
            isBegun ||= isReady;
            if (!isBegun) {
                return { says: 'The model reads.' };
            }
            const says = !isReady ? `Character ${n} of ${most} …`
                : `Head ${NAMES[state.head]}, from ${named(letters[looker])}, character ${looker + 1}: ${told.join('; ')}. `
                + `The text costs ${number(written.surprise, 2)} nats a character. `
                + `The caches hold ${2 * BLOCKS * keys.entries.length} numbers of ${n} characters.`;
            return { svg, says, limits: { looker: most } };
        },
    };
};
