// What CSS alone cannot do: a link past the navigation, a sidebar switch and scrolling boxes that the keyboard reaches,
// and folded answers open on paper.
'use strict';
(() => {
    const skip = document.createElement('a');
    skip.className = 'skip-link';
    skip.href = '#mdbook-content';
    skip.textContent = 'Skip to the text';
    document.body.prepend(skip);

    // mdBook's switch is a <label>, which neither takes the focus nor may carry the states it is given.
    document.getElementById('mdbook-menu-bar').setAttribute('role', 'banner');
    const toggle = document.getElementById('mdbook-sidebar-toggle');
    toggle.setAttribute('role', 'button');
    toggle.tabIndex = 0;
    toggle.addEventListener('keydown', event => {
        if (event.key === 'Enter' || event.key === ' ') {
            event.preventDefault();
            toggle.click();
        }
    });

    const boxes = document.querySelectorAll('.katex-display, .table-wrapper, figure.wide, main pre > code');
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
