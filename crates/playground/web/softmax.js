// Softmax of three scores as all are multiplied by one factor: a curve for each weight, and a cursor at the chosen factor.
import { number, rare, remembered, scientific, slider, time } from './figure.js';
import { bars, drawing, shape, text } from './draw.js';

/** With three digits; a large or small one with its power of ten. */
const told = ratio => ratio >= 1e-2 && ratio < 1e3 ? ratio.toPrecision(3) : scientific(ratio, 3);

const NAMES = ['first', 'second', 'third'];
const DASHES = ['none', '9 5', '2 4'];
const MOST = 8;
const [LEFT, TOP, WIDTH, HEIGHT] = [90, 40, 380, 180];
const [x, y] = [factor => LEFT + WIDTH * factor / MOST, weight => TOP + HEIGHT * (1 - weight)];

export default attention => {
    const weightsOf = scores => attention.softmax(new Float64Array(scores));
    const curvesOf = remembered(shifted => {
        const curves = NAMES.map(() => []);
        for (let at = 0; at <= MOST; at += 0.125) {
            weightsOf(shifted.map(score => at * score)).forEach((weight, i) => curves[i].push(`${x(at)},${y(weight).toFixed(1)}`));
        }
        return curves.map(points => points.join(' '));
    });
    return {
        controls: [
            slider('first', 'first score', -4, 4, 0.1, 2),
            slider('second', 'second score', -4, 4, 0.1, 1),
            slider('third', 'third score', -4, 4, 0.1, -1),
            rare(slider('shift', 'added to all', -10, 10, 0.5, 0)),
            time('factor', 'factor on all', MOST, 1, { seconds: 12, stop: 0.5 }),
        ],
        draw({ first, second, third, shift, factor }) {
            const shifted = [first, second, third].map(score => score + shift);
            const scores = shifted.map(score => factor * score);
            const weights = weightsOf(scores);
            const svg = drawing(520, 394, 'The weights of three scores against the factor that multiplies them');
            for (const tick of [0, 0.5, 1]) {
                svg.append(
                    shape('path', { d: `M${LEFT},${y(tick)}h${WIDTH}`, stroke: 'var(--fig-muted)', 'stroke-opacity': 0.25 }),
                    text(LEFT - 8, y(tick), String(tick), 'end'),
                );
            }
            for (let tick = 0; tick <= MOST; tick += 2) {
                svg.append(text(x(tick), TOP + HEIGHT + 16, String(tick)));
            }
            svg.append(text(LEFT, 14, 'weight', 'start'), text(LEFT + WIDTH / 2, TOP + HEIGHT + 40, `factor on the scores ${shifted.map(score => number(score, 1)).join(', ')}`));
            curvesOf(shifted).forEach((points, i) => svg.append(shape('polyline', {
                points, fill: 'none', stroke: `var(--fig-${i + 1})`, 'stroke-width': 2.5, 'stroke-dasharray': DASHES[i],
            })));
            svg.append(shape('line', { x1: x(factor), x2: x(factor), y1: TOP, y2: TOP + HEIGHT, stroke: 'var(--fig-fg)', 'stroke-width': 1.5 }));
            weights.forEach((weight, i) => svg.append(shape('circle', {
                cx: x(factor), cy: y(weight), r: 5, fill: `var(--fig-${i + 1})`, stroke: 'var(--fig-bg)', 'stroke-width': 1.5,
            })));
            bars(svg, {
                left: LEFT, top: 290, width: 300, row: 32, most: 1, labels: NAMES, values: [...weights], digits: 3,
            });
            const parts = NAMES.map((name, i) => `${name} ${number(weights[i], 3)}`);
            const ratio = weights[0] / weights[1];
            return {
                svg,
                says: `Scores: ${scores.map(score => number(score, 1)).join(', ')}. Weights: ${parts.join(', ')}. The first is ${told(ratio)} times the second.`,
            };
        },
    };
};
