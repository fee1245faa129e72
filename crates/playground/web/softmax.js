// Softmax of three scores, which can be moved, shifted together and stretched.
import { number, slider } from './figure.js';
import { bars, drawing, text } from './draw.js';

/** With three digits; a large or small one with its power of ten. */
const told = ratio => {
    const [digits, power] = ratio.toExponential(2).split('e');
    return Math.abs(power) < 3 ? ratio.toPrecision(3) : `${digits} · 10${[...power.replace('+', '')].map(c => c === '-' ? '⁻' : '⁰¹²³⁴⁵⁶⁷⁸⁹'[c]).join('')}`;
};

const NAMES = ['first', 'second', 'third'];

export const softmax = attention => ({
    controls: [
        slider('first', 'first score', -4, 4, 0.1, 2),
        slider('second', 'second score', -4, 4, 0.1, 1),
        slider('third', 'third score', -4, 4, 0.1, -1),
        slider('shift', 'added to all', -10, 10, 0.5, 0),
        slider('factor', 'factor on all', 0, 8, 0.1, 1),
    ],
    draw({ first, second, third, shift, factor }) {
        const scores = [first, second, third].map(score => factor * (score + shift));
        const weights = attention.softmax(new Float64Array(scores));
        const svg = drawing(520, 260, 'Three scores and their weights');
        svg.append(text(90, 14, 'scores', 'start'), text(90, 146, 'weights', 'start'));
        const most = Math.max(...scores.map(Math.abs), 1);
        bars(svg, { left: 90, top: 28, width: 330, row: 32, most, labels: NAMES, values: scores, signed: true });
        bars(svg, { left: 90, top: 160, width: 330, row: 32, most: 1, labels: NAMES, values: [...weights], digits: 3 });
        const parts = NAMES.map((name, i) => `${name} ${number(weights[i], 3)}`);
        const ratio = weights[0] / weights[1];
        return {
            svg,
            says: `Weights: ${parts.join(', ')}. The first is ${told(ratio)} times the second.`,
        };
    },
});
