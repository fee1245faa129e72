// Attention step by step: any matrix between X and the output, and the products behind any number of it.
import { choice, number, remembered, slider, time } from './figure.js';
import { drawing, entries, heatMap, shape, text } from './draw.js';

export default attention => {
    const sentences = [attention.Sentence.river(), attention.Sentence.city()];
    const dimensions = attention.dimensions();
    const [wQ, wK, wV] = attention.projections();
    const stages = ['X', 'queries Q', 'keys K', 'values V', 'scores S', 'weights A', 'output O'];
    const computed = remembered(sentence => {
        const [q, k, v] = [wQ, wK, wV].map(w => attention.project(sentences[sentence].x, w));
        const { scores, weights, output } = new attention.Attention(q, k, v, attention.Mask.none());
        return { q, k, v, result: { scores, weights, output } };
    });
    return {
        controls: [
            choice('sentence', 'sentence', sentences.map(sentence => sentence.tokens.join(' '))),
            time('stage', 'step', 6, 4, { seconds: 18, moments: () => [[4, 'scores'], [5, 'weights'], [6, 'output']] }),
            slider('row', 'row', 1, 6, 1, 3, 0),
            slider('column', 'column', 1, 6, 1, 2, 0),
        ],
        draw(state, set) {
            const { tokens, x } = sentences[state.sentence];
            const { q, k, v, result } = computed(state.sentence);
            // Between two steps, the entries of the next matrix come row by row.
            const stage = Math.ceil(state.stage);
            const matrix = [x, q, k, v, result.scores, result.weights, result.output][stage];
            const over = matrix.columns === tokens.length ? tokens : dimensions;
            const columns = { 0: dimensions, 4: over, 5: over }[stage] ?? ['1', '2'];
            const [i, j] = [state.row - 1, Math.min(state.column - 1, matrix.columns - 1)];
            const size = Math.max(...matrix.entries.map(Math.abs));
            const svg = drawing(460, 470, `${stages[stage]} of “${tokens.join(' ')}”`);
            const there = Math.ceil((state.stage - stage + 1) / 0.8 * matrix.rows);
            stages.forEach((name, s) => {
                const box = shape('g', { class: 'press' }, shape('rect', {
                    x: 66 + 50 * s, y: 2, width: 42, height: 30, rx: 4, fill: 'var(--fig-bg)', stroke: s === stage ? 'var(--fig-2)' : 'var(--fig-muted)',
                    'stroke-width': s === stage ? 2.5 : 1,
                }), text(87 + 50 * s, 17, name.at(-1)));
                box.addEventListener('click', () => set({ stage: s }));
                svg.append(box);
            });
            svg.append(text(66, 60, stages[stage], 'start'));
            heatMap(svg, {
                left: 66, top: 106, count: there * matrix.columns, rows: tokens, columns, matrix, full: size, chosen: [i, j],
                choose: (row, column) => set({ row: row + 1, column: column + 1 }),
            });
            const value = number(entries(matrix)(i, j), 2);
            const products = (a, b, count) => Array.from({ length: count }, (_, l) =>
                `${number(a(l), 2)} · ${number(b(l), 2)}`).join(' + ');
            const of = (m, row) => l => entries(m)(row, l);
            const down = (m, column) => l => entries(m)(l, column);
            const behind = [
                () => `“${tokens[i]}” has ${value} of ${dimensions[j]}.`,
                () => `${products(of(x, i), down(wQ, j), 4)} = ${value}.`,
                () => `${products(of(x, i), down(wK, j), 4)} = ${value}.`,
                () => `${products(of(x, i), down(wV, j), 4)} = ${value}.`,
                () => `“${tokens[i]}” asks, “${tokens[j]}” answers: (${products(of(q, i), of(k, j), 2)}) / √2 = ${value}.`,
                () => `“${tokens[i]}” gives ${value} of its attention to “${tokens[j]}”; the row sums to 1.`,
                () => `${products(of(result.weights, i), down(v, j), 6)} = ${value}.`,
            ];
            const says = `Row ${i + 1}, column ${j + 1}. ${behind[stage]()}`;
            return { svg, says, limits: { column: matrix.columns } };
        },
    };
};
