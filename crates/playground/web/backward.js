// The gradients of a layer on the map of its forward pass: each with its formula, and what dX becomes where a path is dropped.
import { choice, number, remembered, time } from './figure.js';
import { drawing, entries, heatMap, shape, text } from './draw.js';

const NODES = {
    X: [26, 80], Q: [114, 26], K: [114, 80], V: [114, 134], S: [202, 53], A: [282, 53], O: [370, 90], Y: [450, 90],
};
const EDGES = ['XQ', 'XK', 'XV', 'QS', 'KS', 'SA', 'AO', 'VO', 'OY'];
// From the output back to the input: where the gradient is, which edges it comes through, and by which formula.
const STEPS = [
    ['Y', [], 'dY comes from the loss; here, numbers that we chose'],
    ['O', ['OY'], 'dO = dY W_Oᵀ'],
    ['V', ['VO'], 'dV = Aᵀ dO'],
    ['A', ['AO'], 'dA = dO Vᵀ'],
    ['S', ['SA'], 'dS = A ⊙ (dA − D), with D the row sums of A ⊙ dA'],
    ['Q', ['QS'], 'dQ = dS K / √2'],
    ['K', ['KS'], 'dK = dSᵀ Q / √2'],
    ['X', ['XQ', 'XK', 'XV'], 'dX = dQ W_Qᵀ + dK W_Kᵀ + dV W_Vᵀ'],
];
const PATHS = ['none', 'queries', 'keys', 'values'];
const CELL = 52;

export default attention => {
    const layer = attention.Layer.example();
    const { tokens } = attention.Sentence.river();
    const dimensions = attention.dimensions();
    const whole = layer.matrix('dX', 0).entries;
    const terms = [0, 1, 2].map(path => layer.path(path).entries);
    const matrixOf = remembered(name => layer.matrix(name, 0));
    const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
    const without = dropped => whole.map((x, i) => dropped === 0 ? x : x - terms[dropped - 1][i]);
    return {
        controls: [
            time('step', 'gradient', STEPS.length - 1, STEPS.length - 1, {
                seconds: 16, moments: () => [[4, 'back through softmax'], [7, 'three paths meet in dX']],
            }),
            choice('dropped', 'path into X that is dropped', PATHS),
        ],
        draw({ step, dropped }, set) {
            // Between two steps, the next gradient is on its way along its edges.
            const coming = Math.ceil(step);
            const travelled = Math.min((step - coming + 1) / 0.6, 1);
            const [node, through, formula] = STEPS[coming];
            const there = STEPS.slice(0, travelled < 1 ? coming : coming + 1).map(([name]) => name);
            const lost = dropped === 0 ? '' : `X${'QKV'[dropped - 1]}`;
            const svg = drawing(480, 540, `The gradient d${node} on the map of a layer`);
            for (const edge of EDGES) {
                const [[x1, y1], [x2, y2]] = [...edge].map(end => NODES[end]);
                const isUsed = through.includes(edge) && edge !== lost;
                svg.append(shape('line', {
                    x1, y1, x2, y2, stroke: 'var(--fig-muted)', 'stroke-width': 1.5, 'stroke-dasharray': edge === lost ? '3 5' : 'none',
                }));
                if (isUsed) {
                    // Forward, an edge leads to the right; a gradient comes from there.
                    const [x, y] = [x2 + (x1 - x2) * travelled, y2 + (y1 - y2) * travelled];
                    svg.append(shape('line', { x1: x2, y1: y2, x2: x, y2: y, stroke: 'var(--fig-2)', 'stroke-width': 4 }));
                }
            }
            for (const [name, [x, y]] of Object.entries(NODES)) {
                const isHere = name === node;
                const isThere = there.includes(name);
                const group = shape('g', { class: 'press' }, shape('circle', {
                    cx: x, cy: y, r: 21, fill: 'var(--fig-bg)', stroke: isHere ? 'var(--fig-2)' : isThere ? 'var(--fig-fg)' : 'var(--fig-muted)',
                    'stroke-width': isHere ? 4 : 1.5, 'stroke-dasharray': isThere || isHere ? 'none' : '3 4',
                }), text(x, y, `d${name}`, 'middle', isThere || isHere ? 'var(--fig-fg)' : 'var(--fig-muted)'));
                group.addEventListener('click', () => set({ step: STEPS.findIndex(([of]) => of === name) }));
                svg.append(group);
            }
            let matrix = matrixOf(`d${node}`);
            if (node === 'X') {
                matrix = new attention.Matrix(matrix.rows, matrix.columns, without(dropped));
            }
            const { rows, columns } = matrix;
            const names = node === 'X' || node === 'Y' ? dimensions : columns === rows ? tokens : ['1', '2'];
            const full = Math.max(...matrix.entries.map(Math.abs));
            svg.append(text(60, 182, formula, 'start'));
            heatMap(svg, {
                left: 60, top: 222, rows: tokens, columns: names, matrix, full, cell: CELL, count: Math.floor(rows * columns * Math.max(0, (step - coming + 0.4) / 0.4)),
            });
            const cut = without(dropped);
            const [length, kept] = [whole, cut].map(of => Math.sqrt(dot(of, of)));
            const cosine = dot(whole, cut) / (length * kept);
            const says = [`${formula}. It has the shape of ${node}, (${rows}, ${columns}).`];
            if (dropped !== 0) {
                says.push(`Without the path through the ${PATHS[dropped]}, dX has ${number(kept / length, 2)} of its length, and the cosine `
                    + `of its angle to the right one is ${number(cosine, 2)}.`);
            }
            return { svg, says: says.join(' ') };
        },
    };
};
