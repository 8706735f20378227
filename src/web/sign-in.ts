import { signIn } from './api.ts'
import { applyTheme } from './theme.ts'

const find = <E extends Element>(selector: string): E => document.querySelector<E>(selector)!

const tried = async (code: string): Promise<void> => {
  const status = find<HTMLElement>('#status')
  status.textContent = 'Signing in …'
  try {
    await signIn(code)
    location.replace('/')
  } catch (error) {
    status.textContent = error instanceof Error ? error.message : String(error)
    find<HTMLInputElement>('#code').focus()
  }
}

/** Takes the code out of the address, so that it cannot be seen there later. */
const codeOfAddress = (): string => {
  const code = location.hash.slice(1)
  history.replaceState(null, '', '/sign-in')
  return code
}

/** Uses the code of the link, or one that the user types. */
export const main = async (): Promise<void> => {
  applyTheme()
  find<HTMLFormElement>('form').addEventListener('submit', (event) => {
    event.preventDefault()
    const typed = find<HTMLInputElement>('#code').value.trim()
    void tried(typed.slice(typed.indexOf('#') + 1))
  })
  // A link pasted into the open page does not reload it.
  addEventListener('hashchange', () => void tried(codeOfAddress()))
  const code = codeOfAddress()
  if (code !== '') await tried(code)
}
