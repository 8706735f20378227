/** Starts a sandboxed run and prints `ready`, like a daemon that the test then kills. Arguments: `HOME PROJECT MARK FORM`. */
import { startSandboxed, type SandboxForm } from './sandboxed.ts'

const [, , home = '', project = '', mark = '', form = 'null'] = process.argv
const t = { after: () => undefined }
const place = { home, secrets: [] }
const argv = [
  'sh',
  '-c',
  `MARK=${mark} setsid sh -c "trap '' TERM HUP; while :; do sleep 0.05; done" & echo ready; while :; do sleep 0.05; done`,
]
const started = await startSandboxed(t, { home, project, place, form: JSON.parse(form) as SandboxForm | null }, argv)
if ('failed' in started) throw new Error(started.failed)
const timer = setInterval(() => {
  if (!started.stdout().includes('ready')) return
  clearInterval(timer)
  process.stdout.write('ready\n')
}, 5)
