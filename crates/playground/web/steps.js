// Attention step by step: any matrix between X and the output, and the products behind any number of it.
import { choice, number, slider, step } from './figure.js';
import { drawing, entries, heatMap, text } from './draw.js';

export const steps = attention => {
    const sentences = [attention.Sentence.river(), attention.Sentence.city()];
    const dimensions = attention.dimensions();
    const [wQ, wK, wV] = attention.projections();
    const stages = ['X', 'queries Q', 'keys K', 'values V', 'scores S', 'weights A', 'output O'];
    return {
        controls: [
            choice('sentence', 'sentence', sentences.map(sentence => sentence.tokens.join(' '))),
            step('stage', 'step', stages, 4),
            slider('row', 'row', 1, 6, 1, 3, 0),
            slider('column', 'column', 1, 6, 1, 2, 0),
        ],
        draw(state, set) {
            const { tokens, x } = sentences[state.sentence];
            const [q, k, v] = [wQ, wK, wV].map(w => attention.project(x, w));
            const result = new attention.Attention(q, k, v, attention.Mask.none());
            const matrix = [x, q, k, v, result.scores, result.weights, result.output][state.stage];
            const over = matrix.columns === tokens.length ? tokens : dimensions;
            const columns = { 0: dimensions, 4: over, 5: over }[state.stage] ?? ['1', '2'];
            const [i, j] = [state.row - 1, Math.min(state.column - 1, matrix.columns - 1)];
            const size = Math.max(...matrix.entries.map(Math.abs));
            const svg = drawing(460, 410, `${stages[state.stage]} of “${tokens.join(' ')}”`);
            svg.append(text(66, 12, stages[state.stage], 'start'));
            heatMap(svg, {
                left: 66, top: 52, rows: tokens, columns, matrix, full: size, chosen: [i, j],
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
            const says = `Row ${i + 1}, column ${j + 1}. ${behind[state.stage]()}`;
            return { svg, says, limits: { column: matrix.columns } };
        },
    };
};
