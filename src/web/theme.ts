import { useState } from 'preact/hooks'

const THEMES = ['auto', 'light', 'dark'] as const
type Theme = (typeof THEMES)[number]

const KEY = 'x0x-theme'

const stored = (): Theme => THEMES.find((theme) => theme === localStorage.getItem(KEY)) ?? 'auto'

/** Applies the chosen theme before the first rendering. `auto` follows the system. */
export const applyTheme = (theme: Theme = stored()): void => {
  document.documentElement.dataset['theme'] = theme
}

/** The theme, and a function that chooses the next one. */
export const useTheme = (): readonly [Theme, () => void] => {
  const [theme, setTheme] = useState(stored())
  const next = (): void => {
    // Two keys can come before the next rendering.
    const following = THEMES[(THEMES.indexOf(stored()) + 1) % THEMES.length]!
    localStorage.setItem(KEY, following)
    applyTheme(following)
    setTheme(following)
  }
  return [theme, next]
}
