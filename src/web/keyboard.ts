import { useEffect } from 'preact/hooks'

export interface KeyBindings {
  choose(view: number): void
  help(): void
  search(): void
}

const WRITES = 'input, textarea, select'

const cards = (): HTMLElement[] => [...document.querySelectorAll<HTMLElement>('[data-question]')]

const move = (by: 1 | -1): void => {
  const all = cards()
  const at = all.findIndex((card) => card.contains(document.activeElement))
  all[Math.max(0, Math.min(all.length - 1, at + by))]?.focus()
}

const deny = (): void =>
  cards()
    .find((card) => card.contains(document.activeElement))
    ?.querySelector<HTMLButtonElement>('[data-deny]')
    ?.click()

const search = (): void => void setTimeout(() => document.querySelector<HTMLInputElement>('[data-search]')?.focus())

/** Single keys, ignored in text fields. None of them allows anything. */
export const useKeys = (keys: KeyBindings): void => {
  useEffect(() => {
    const stop = new AbortController()
    const press = (event: KeyboardEvent): void => {
      if (event.ctrlKey || event.altKey || event.metaKey || (event.target as Element | null)?.matches(WRITES) === true) return
      if (/^[1-5]$/.test(event.key)) keys.choose(Number(event.key) - 1)
      else if (event.key === 'j') move(1)
      else if (event.key === 'k') move(-1)
      else if (event.key === 'd') deny()
      else if (event.key === '?') keys.help()
      else if (event.key === '/') {
        keys.search()
        search()
      } else return
      event.preventDefault()
    }
    addEventListener('keydown', press, { signal: stop.signal })
    return () => stop.abort()
  })
}
