import { cliCommand, type TestDaemon } from './mesh-of-daemons.ts'
import type { Tmux } from './tmux.ts'

/** Runs `x0x exec` with these words in a shell of tmux, which then prints the exit status. */
export const inTmux = async (tmux: Tmux, daemon: TestDaemon, words: string): Promise<void> => {
  const [file, ...own] = cliCommand
  const x0x = [file, ...own, ...daemon.selector].map((word) => `'${word}'`).join(' ')
  const env = { PATH: process.env['PATH'] ?? '', HOME: process.env['HOME'] ?? '' }
  await tmux.begin({ env, argv: ['sh', '-c', `${x0x} exec ${words}; echo "status=$?"; stty -a | tr ' ' '\\n' | grep icanon; read end`] })
}

/** Types a text key by key, as a user does. */
export const typeText = async (tmux: Tmux, text: string): Promise<void> => {
  for (const key of text) await tmux.press(key === ' ' ? 'Space' : key)
}

export const typeLine = async (tmux: Tmux, text: string): Promise<void> => {
  await typeText(tmux, text)
  await tmux.press('Enter')
}
