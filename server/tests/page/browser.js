// Headless Chromium.
import { chromium } from 'playwright-core';

/** Starts a browser that loads nothing for itself. */
export function browse() {
  return chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  });
}

/** Opens an empty page that shares nothing with other pages, such as a cache. */
export function newPage(browser) {
  return browser.newPage({ viewport: { width: 1280, height: 860 } });
}
