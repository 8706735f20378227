import { signIn } from './api.ts'

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

/** Follows the code of the link, or takes one that is typed. */
export const main = async (): Promise<void> => {
  const code = location.hash.slice(1)
  // Whoever sees the address from now on sees no code.
  history.replaceState(null, '', '/sign-in')
  find<HTMLFormElement>('form').addEventListener('submit', (event) => {
    event.preventDefault()
    const typed = find<HTMLInputElement>('#code').value.trim()
    void tried(typed.slice(typed.indexOf('#') + 1))
  })
  if (code !== '') await tried(code)
}
