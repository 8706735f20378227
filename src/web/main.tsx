import { render } from 'preact'
import { App } from './app.tsx'

export const main = (): void => render(<App />, document.querySelector('#page')!)
