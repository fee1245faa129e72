// A measured slope against its step, beside the gradient that the backward pass gives.
import { choice, scientific, slider } from './figure.js';
import { drawing, shape, text } from './draw.js';

const LEAST = -13; // powers of ten, of steps and of errors
const [LEFT, TOP, WIDTH, HEIGHT] = [70, 14, 420, 260];
const x = power => LEFT + WIDTH * (power - LEAST) / -LEAST;
const y = power => TOP + HEIGHT * Math.min(1, Math.max(0, power / LEAST));

export default attention => {
    const gradient = attention.Layer.example().matrix('dX', 0);
    const analytic = gradient.entries[5 * gradient.columns]; // “bank”, water: the entry whose slope is measured
    const error = (power, single) => {
        try {
            const measured = attention.measured_slope(10 ** power, single);
            return { measured, error: Math.abs(measured - analytic) };
        } catch {
            return undefined; // the step is lost beside the number
        }
    };
    // From right to left, as far as there is a step.
    const curve = single => {
        const points = [];
        for (let power = 0; power >= LEAST; power -= 0.25) {
            const at = error(power, single);
            if (at) {
                points.push([x(power), y(Math.log10(Math.max(at.error, 1e-13)))].map(pixel => pixel.toFixed(1)).join(','));
            }
        }
        return points.join(' ');
    };
    const curves = [curve(false), curve(true)];
    return {
        controls: [
            slider('power', 'step: ten to the', -12, 0, 0.25, -1, 2),
            choice('type', 'type', ['f64', 'f32']),
        ],
        draw({ power, type }) {
            const svg = drawing(520, 330, 'The error of a measured slope against its step');
            for (let tick = 0; tick >= -12; tick -= 4) {
                const words = tick === 0 ? '1' : `10${[...String(tick)].map(c => c === '-' ? '⁻' : '⁰¹²³⁴⁵⁶⁷⁸⁹'[c]).join('')}`;
                svg.append(
                    shape('path', {
                        d: `M${x(tick)},${TOP}V${TOP + HEIGHT}M${LEFT},${y(tick)}H${LEFT + WIDTH}`,
                        stroke: 'var(--fig-muted)', 'stroke-opacity': 0.25, fill: 'none',
                    }),
                    text(x(tick), TOP + HEIGHT + 18, words), text(LEFT - 8, y(tick), words, 'end'),
                );
            }
            svg.append(text(LEFT + WIDTH / 2, TOP + HEIGHT + 42, 'step ε'), text(LEFT + 8, TOP + 10, 'error', 'start'));
            curves.forEach((points, i) => svg.append(shape('polyline', {
                points, fill: 'none', stroke: `var(--fig-${i + 1})`, 'stroke-width': i === type ? 3 : 1.5,
                'stroke-dasharray': i === 0 ? 'none' : '7 5',
            })));
            // A curve has its name where it ends on the left: above that end, or before it if there is room.
            curves.forEach((points, i) => {
                const [left, top] = points.split(' ').at(-1).split(',').map(Number);
                const [name, colour] = [['f64', 'f32'][i], `var(--fig-${i + 1})`];
                svg.append(left > LEFT + 40 ? text(left - 8, top, name, 'end', colour) : text(left + 4, top - 16, name, 'start', colour));
            });
            const at = error(power, type === 1);
            let says = `The step is lost beside the number: no slope can be measured.`;
            if (at) {
                svg.append(shape('circle', {
                    cx: x(power), cy: y(Math.log10(Math.max(at.error, 1e-13))), r: 6, fill: 'var(--fig-bg)',
                    stroke: 'var(--fig-fg)', 'stroke-width': 2.5,
                }));
                says = `Backward pass: ${analytic.toFixed(12)}. Measured: ${at.measured.toFixed(12)}. `
                    + `They differ by ${scientific(at.error, 2)}.`;
            }
            return { svg, says: says.replaceAll(' -', ' −') };
        },
    };
};
