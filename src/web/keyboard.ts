import { useEffect } from 'preact/hooks'

export interface KeyBindings {
  /** Opens a view, by its position. */
  choose(view: number): void
  help(): void
  theme(): void
  /** Leaves an item for its list. */
  back(): void
}

const WRITES = 'input, textarea, select'
const ROWS = '[data-question], [data-row]'

const rows = (): HTMLElement[] => [...document.querySelectorAll<HTMLElement>(`main :is(${ROWS})`)]

const move = (by: 1 | -1): boolean => {
  const all = rows()
  const at = all.findLastIndex((row) => row.contains(document.activeElement))
  const next = all[at === -1 ? 0 : Math.max(0, Math.min(all.length - 1, at + by))]
  next?.focus()
  return next !== undefined
}

const deny = (): void =>
  [...document.querySelectorAll<HTMLElement>('[data-question]')]
    .find((card) => card.contains(document.activeElement))
    ?.querySelector<HTMLButtonElement>('[data-deny]')
    ?.click()

const click = (button: string): boolean => {
  const found = document.querySelector<HTMLButtonElement>(button)
  found?.click()
  return found !== null
}

const search = (): boolean => {
  const field = document.querySelector<HTMLInputElement>('[data-search]')
  field?.focus()
  return field !== null
}

/** Arrow keys scroll the page unless a row has the focus. */
const isInList = (): boolean => (document.activeElement?.closest(ROWS) ?? null) !== null

/** Returns whether the key did something. */
const press = (key: string, keys: KeyBindings): boolean => {
  if (/^[1-9]$/.test(key)) keys.choose(Number(key) - 1)
  else if (key === 'j' || (key === 'ArrowDown' && isInList())) return move(1)
  else if (key === 'k' || (key === 'ArrowUp' && isInList())) return move(-1)
  else if (key === 'd') deny()
  else if (key === 'n') return click('[data-next]')
  else if (key === 'N') return click('[data-previous]')
  else if (key === 't') keys.theme()
  else if (key === '?') keys.help()
  else if (key === 'Escape') keys.back()
  else if (key === '/') return search()
  else return false
  return true
}

/** Single keys, ignored in text fields and dialogs. None of them allows anything. */
export const useKeys = (keys: KeyBindings): void => {
  useEffect(() => {
    const stop = new AbortController()
    const take = (event: KeyboardEvent): void => {
      const target = event.target as Element | null
      const isTyped = target?.matches(WRITES) === true || document.querySelector('dialog[open]') !== null
      if (event.ctrlKey || event.altKey || event.metaKey || isTyped) return
      if (press(event.key, keys)) event.preventDefault()
    }
    addEventListener('keydown', take, { signal: stop.signal })
    return () => stop.abort()
  })
}
