import { render } from 'preact'
import { App } from './app.tsx'

/** Draws the page. */
export const main = (): void => render(<App />, document.querySelector('#page')!)
