import type { ConsoleScreen } from '../screen.ts'

/** Shows no commands, only notes. */
export const silentScreen = (note: (text: string) => void): ConsoleScreen => ({
  start: () => {},
  output: () => {},
  end: () => {},
  record: note,
  close: async () => {},
})
