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

/** The code of the address; whoever sees the address from then on sees none. */
const codeOfAddress = (): string => {
  const code = location.hash.slice(1)
  history.replaceState(null, '', '/sign-in')
  return code
}

/** Follows the code of the link, or takes one that is typed. */
export const main = async (): Promise<void> => {
  find<HTMLFormElement>('form').addEventListener('submit', (event) => {
    event.preventDefault()
    const typed = find<HTMLInputElement>('#code').value.trim()
    void tried(typed.slice(typed.indexOf('#') + 1))
  })
  // A link that is pasted where this page is open loads nothing anew.
  addEventListener('hashchange', () => void tried(codeOfAddress()))
  const code = codeOfAddress()
  if (code !== '') await tried(code)
}
