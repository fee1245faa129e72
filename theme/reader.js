// What CSS alone cannot do: a link past the navigation, boxes that scroll sideways reachable by keyboard, and folded
// answers open on paper.
'use strict';
(() => {
    const skip = document.createElement('a');
    skip.className = 'skip-link';
    skip.href = '#mdbook-content';
    skip.textContent = 'Skip to the text';
    document.body.prepend(skip);

    const boxes = document.querySelectorAll('.katex-display, .table-wrapper, main pre > code');
    const mark = () => boxes.forEach(box => {
        if (box.scrollWidth > box.clientWidth + 1) {
            box.tabIndex = 0;
        } else {
            box.removeAttribute('tabindex');
        }
    });
    mark();
    window.addEventListener('resize', mark);
    if (document.fonts) {
        document.fonts.ready.then(mark);
    }

    let opened = [];
    window.addEventListener('beforeprint', () => {
        opened = [...document.querySelectorAll('main details:not([open])')];
        opened.forEach(fold => fold.open = true);
    });
    window.addEventListener('afterprint', () => opened.forEach(fold => fold.open = false));
})();
