import { render } from 'preact'
import { App } from './app.tsx'
import { applyTheme } from './theme.ts'

export const main = (): void => {
  applyTheme()
  render(<App />, document.querySelector('#page')!)
}
