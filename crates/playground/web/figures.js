// The figures that move: each <figure data-figure="name"> of the page becomes the figure of that name, once it comes near the window.
import start, * as attention from './attention.js';
import { Figure } from './figure.js';
import { backward } from './backward.js';
import { byHand } from './by_hand.js';
import { bank } from './bank.js';
import { banks } from './banks.js';
import { look } from './look.js';
import { masks } from './masks.js';
import { online } from './online.js';
import { pipeline } from './pipeline.js';
import { roofline } from './roofline.js';
import { root } from './root.js';
import { slope } from './slope.js';
import { softmax } from './softmax.js';
import { steps } from './steps.js';
import { turn } from './turn.js';
import { walk } from './walk.js';
import { workbench } from './workbench.js';
import { writer } from './writer.js';

const figures = {
    backward, bank, banks, 'by-hand': byHand, look, masks, online, pipeline, roofline, root, slope, softmax, steps, turn, walk, workbench, writer,
};

await start();
for (const element of document.querySelectorAll('figure[data-figure]')) {
    const name = element.dataset.figure;
    new Figure(element, name, figures[name](attention, element.dataset));
}
