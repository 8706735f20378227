import type { ConsoleScreen } from '../screen.ts'

/** Shows no commands; notes are told. */
export const silentScreen = (note: (text: string) => void): ConsoleScreen => ({
  start: () => {},
  output: () => {},
  end: () => {},
  record: note,
  close: async () => {},
})
