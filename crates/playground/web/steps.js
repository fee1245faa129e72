// Attention step by step: each matrix between X and the output beside the two that it is a product of, and the products behind any number of it.
import { choice, number, remembered, slider, time } from './figure.js';
import { drawing, entries, heatMap, shape, text } from './draw.js';

const NODES = { X: [28, 76], Q: [92, 34], K: [92, 76], V: [92, 118], S: [152, 55], A: [208, 55], O: [262, 90] };
const EDGES = ['XQ', 'XK', 'XV', 'QS', 'KS', 'SA', 'AO', 'VO'];
// Each matrix with its formula, and the matrices to the left of it and above it.
const STAGES = [
    ['X', 'X: a row of numbers for each word'], ['Q', 'Q = X W_Q', 'X', 'W_Q'], ['K', 'K = X W_K', 'X', 'W_K'], ['V', 'V = X W_V', 'X', 'W_V'],
    ['S', 'S = Q Kᵀ / √2', 'Q', 'Kᵀ'], ['A', 'A = softmax of each row of S', 'S'], ['O', 'O = A V', 'A', 'V'],
];
const CELL = 37;
const [LEFT, TOP] = [306, 282]; // of the result

export default attention => {
    const sentences = [attention.Sentence.river(), attention.Sentence.city()];
    const dimensions = attention.dimensions();
    const [wQ, wK, wV] = attention.projections();
    const computed = remembered(sentence => {
        const { x } = sentences[sentence];
        const [q, k, v] = [wQ, wK, wV].map(w => attention.project(x, w));
        const { scores, weights, output } = new attention.Attention(q, k, v, attention.Mask.none());
        const turned = new attention.Matrix(k.columns, k.rows, new Float64Array(k.rows * k.columns).map((_, l) => entries(k)(l % k.rows, Math.floor(l / k.rows))));
        return { X: x, W_Q: wQ, W_K: wK, W_V: wV, Q: q, K: k, V: v, Kᵀ: turned, S: scores, A: weights, O: output };
    });
    const words = sentences.map(({ tokens }) => tokens);
    return {
        controls: [
            choice('sentence', 'sentence', words.map(tokens => tokens.join(' '))),
            time('stage', 'step', 6, 4, { seconds: 20, moments: () => STAGES.slice(1).map(([name], s) => [s + 1, name]) }),
            slider('row', 'row', 1, 6, 1, 3, 0),
            slider('column', 'column', 1, 6, 1, 2, 0),
        ],
        draw(state, set) {
            const tokens = words[state.sentence];
            const all = computed(state.sentence);
            // Between two steps, the rows of the next matrix come one after the other.
            const stage = Math.ceil(state.stage);
            const rows = 6 * (state.stage - stage + 1);
            const isComing = rows < 6;
            const [name, formula, left, above] = STAGES[stage];
            const matrix = all[name];
            const [i, j] = [isComing ? Math.floor(rows) : state.row - 1, Math.min(state.column, matrix.columns) - 1];
            const svg = drawing(534, 532, `${name} of “${tokens.join(' ')}”`);
            svg.setAttribute('font-size', 15);
            for (const edge of EDGES) {
                const [[x1, y1], [x2, y2]] = [...edge].map(end => NODES[end]);
                const isUsed = edge[1] === name;
                svg.append(shape('line', { x1, y1, x2, y2, stroke: isUsed ? 'var(--fig-2)' : 'var(--fig-muted)', 'stroke-width': isUsed ? 3 : 1.5 }));
            }
            STAGES.forEach(([of], s) => {
                const [cx, cy] = NODES[of];
                const node = shape('g', { class: 'press' }, shape('circle', {
                    cx, cy, r: 17, fill: 'var(--fig-bg)', stroke: of === name ? 'var(--fig-2)' : 'var(--fig-fg)', 'stroke-width': of === name ? 3.5 : 1.5,
                }), text(cx, cy, of));
                node.addEventListener('click', () => set({ stage: s }));
                svg.append(node);
            });
            svg.append(text(14, 172, formula, 'start'));

            const names = { 6: tokens, 4: dimensions.map(name => `${name.slice(0, 3)}.`), 2: ['1', '2'] };
            const full = of => Math.max(...all[of].entries.map(Math.abs));
            const frame = (x, y, columns, rows, colour) => svg.append(shape('rect', {
                x: x - 1, y: y - 1, width: CELL * columns, height: CELL * rows, fill: 'none', stroke: colour, 'stroke-width': 2.5, 'pointer-events': 'none',
            }));
            const blank = count => Array(count).fill('');
            if (left) {
                const at = LEFT - 18 - CELL * all[left].columns;
                heatMap(svg, { left: at, top: TOP, rows: tokens, columns: blank(all[left].columns), matrix: all[left], full: full(left), cell: CELL, digits: 1 });
                svg.append(text(at, TOP + CELL * 6 + 11, left, 'start'));
                frame(at, TOP + CELL * i, all[left].columns, 1, 'var(--fig-1)');
            }
            if (above) {
                const at = TOP - 32 - CELL * all[above].rows;
                heatMap(svg, {
                    left: LEFT, top: at, rows: blank(all[above].rows), columns: blank(all[above].columns), matrix: all[above], full: full(above), cell: CELL, digits: 1,
                });
                svg.append(text(LEFT - 8, at + CELL / 2, above, 'end'));
                if (!isComing) {
                    frame(LEFT + CELL * j, at, 1, all[above].rows, 'var(--fig-2)');
                }
            }
            heatMap(svg, {
                left: LEFT, top: TOP, rows: left ? blank(6) : tokens, columns: names[matrix.columns], matrix, full: full(name), cell: CELL,
                digits: 1, count: Math.ceil(rows) * matrix.columns, choose: (row, column) => set({ row: row + 1, column: column + 1 }),
            });
            frame(LEFT + (isComing ? 0 : CELL * j), TOP + CELL * i, isComing ? matrix.columns : 1, 1, 'var(--fig-fg)');
            svg.append(text(LEFT, TOP + CELL * 6 + 11, name, 'start'));

            const value = number(entries(matrix)(i, j), 2);
            const row = of => l => entries(all[of])(i, l);
            const column = of => l => entries(all[of])(l, j);
            const products = (a, b, count) => Array.from({ length: count }, (_, l) => `${number(a(l), 2)} · ${number(b(l), 2)}`).join(' + ');
            const behind = {
                X: () => `“${tokens[i]}” has ${value} of ${dimensions[j]}.`,
                S: () => `“${tokens[i]}” asks, “${tokens[j]}” answers: (${products(row('Q'), column('Kᵀ'), 2)}) / √2 = ${value}.`,
                A: () => `“${tokens[i]}” gives ${value} of its attention to “${tokens[j]}”; the row sums to 1.`,
            }[name] ?? (() => `${products(row(left), column(above), all[left].columns)} = ${value}.`);
            const says = isComing ? `${formula}: the row of “${tokens[i]}”.` : `Row ${i + 1}, column ${j + 1}. ${behind()}`;
            return { svg, says, limits: { column: matrix.columns } };
        },
    };
};
