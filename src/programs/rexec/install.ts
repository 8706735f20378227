import { mkdir, realpath } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { writeFileAtomic } from '../../base/atomic-file.ts'
import type { Environment } from '../../base/environment.ts'
import { AppError } from '../../base/errors.ts'
import { isVisible } from '../../base/visible-text.ts'
import { configHome } from '../../clients/paths.ts'
import { write } from '../../supervision/program-output.ts'

/** One word of a command in a unit (systemd.service(5), systemd.syntax(7)). Throws `bad_config` for what no line can hold. */
const unitWord = (word: string): string => {
  if (!isVisible(word))
    throw new AppError('bad_config', `--install: a path with characters that do not show themselves: ${JSON.stringify(word)}`)
  return `"${word
    .replaceAll(/["\\]/g, (one) => `\\${one}`)
    .replaceAll('%', '%%')
    .replaceAll('$', '$$$$')}"`
}

/** The unit of a host that shows nothing. */
export const unitText = (command: readonly string[]): string => `[Unit]
Description=Host of commands of AI agents (rexec)

[Service]
ExecStart=${command.map(unitWord).join(' ')}
Restart=on-failure

[Install]
WantedBy=default.target
`

/** Writes the unit of the user who runs this, and says how it is started. */
export const installUnit = async (env: Environment): Promise<number> => {
  const program = await realpath(process.argv[1] ?? '')
  const path = join(configHome(env), 'systemd', 'user', 'rexec.service')
  const text = unitText([process.execPath, program, '--start-host', '--silent'])
  await mkdir(dirname(path), { recursive: true })
  await writeFileAtomic(path, text, 0o644)
  await write(
    process.stdout,
    `written: ${path}\nstart it with: systemctl --user daemon-reload && systemctl --user enable --now rexec\nwatch it with: rexec --attach\n`,
  )
  return 0
}
