import { open, rm } from 'node:fs/promises'
import { AppError, errnoOf, errorText } from '../../base/errors.ts'
import { absolutePath } from '../../base/home.ts'
import type { Environment } from '../../base/runtime.ts'
import { runProgram } from '../../cli/program-line.ts'
import { BUNDLE } from '../../cli/programs.ts'
import { instanceOf } from '../../config/config.ts'
import { examinerOf } from '../../doctor/examiner.ts'
import { loadPrimitives } from '../../identity/primitives.ts'
import { jsonText } from '../../protocol/lines.ts'
import { type BundleFlags, bundleFlags, collect } from './collect.ts'

const defaultFile = (): string => `x0x-bundle-${new Date().toISOString().replaceAll(/[:.]/g, '-')}.json`

const write = async (flags: BundleFlags, env: Environment): Promise<number> => {
  const path = absolutePath('the file', flags.file ?? defaultFile())
  // Opened before root becomes the user of the data directory, who may not be allowed to write here.
  const file = await open(path, 'wx', 0o600).catch((error: unknown) => {
    const why = errnoOf(error) === 'EEXIST' ? 'exists already; choose another file' : `cannot be made: ${errorText(error)}`
    throw new AppError('conflict', `${path} ${why}`, { cause: error })
  })
  try {
    await loadPrimitives()
    const examiner = await examinerOf(instanceOf(flags, env).paths.dir)
    const text = await collect(flags, examiner, env, () => process.stdin)
    await file.writeFile(text)
    await file.sync()
    const bytes = Buffer.byteLength(text)
    process.stdout.write(
      flags.json ? `${jsonText({ ok: true, file: path, bytes })}\n` : `${path}: ${bytes} bytes; read it before you send it\n`,
    )
    return 0
  } catch (error) {
    await rm(path, { force: true }).catch(() => undefined)
    throw error
  } finally {
    await file.close()
  }
}

/** Returns the exit status: 0; 1 if nothing was written; 2 for wrong flags. */
export const main = async (argv: readonly string[], env: Environment): Promise<number> =>
  runProgram(BUNDLE, argv, async (line) => write(bundleFlags(line), env))
