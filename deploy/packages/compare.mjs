// `npm run packages -- --compare`: makes the packages again from a copy of the sources, without earlier builds. Directory, user mask, time
// zone and locale are different. The same commit must give the same bytes.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { packageRoot } from '../runtime.mjs'
import { OUT, ran, sourceDate } from './place.mjs'

/** The checksums of a directory with packages, by file name. */
const sumsIn = (directory) =>
  new Map(
    readFileSync(join(directory, 'SHA256SUMS'), 'utf8')
      .trimEnd()
      .split('\n')
      .map((line) => line.split('  ').toReversed()),
  )

/** Copies the files that git tracks or would add, and the installed packages without the caches of builds. */
const copySources = async (place) => {
  const names = await ran('git', ['-c', 'safe.directory=*', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    cwd: packageRoot,
  })
  for (const name of names.split('\0'))
    if (name !== '' && existsSync(join(packageRoot, name))) cpSync(join(packageRoot, name), join(place, name), { verbatimSymlinks: true })
  const [modules, cache] = [join(packageRoot, 'node_modules'), join(packageRoot, 'node_modules', '.cache')]
  const kept = join(cache, 'packages')
  const filter = (path) => !path.startsWith(`${cache}/`) || path === kept || path.startsWith(`${kept}/`)
  cpSync(modules, join(place, 'node_modules'), { recursive: true, verbatimSymlinks: true, filter })
}

const ELSEWHERE = { TZ: 'Pacific/Kiritimati', LC_ALL: 'C', LANG: 'C' }

const makeThere = async (place) => {
  const env = { ...process.env, ...ELSEWHERE, SOURCE_DATE_EPOCH: String(await sourceDate()) }
  const words = ['-c', 'umask 0077 && exec "$0" deploy/run.mjs packages', process.execPath]
  const [status] = await once(spawn('sh', words, { cwd: place, env, stdio: ['ignore', 'ignore', 'inherit'] }), 'exit')
  if (status !== 0) throw new Error(`the packages could not be made in ${place}: status ${status}`)
}

/** Compares the packages in dist/packages with those of a second run. Throws with the names of those that differ. */
export const comparePackages = async () => {
  const place = mkdtempSync(join(tmpdir(), 'x0x-packages-'))
  try {
    await copySources(place)
    await makeThere(place)
    const [first, second] = [sumsIn(OUT), sumsIn(join(place, 'dist', 'packages'))]
    const names = [...new Set([...first.keys(), ...second.keys()])].toSorted()
    const differing = names.filter((name) => first.get(name) !== second.get(name))
    if (differing.length > 0) throw new Error(`a second run made other bytes: ${differing.join(', ')}`)
    console.log(`a second run made the same bytes: ${names.length} files`)
  } finally {
    rmSync(place, { recursive: true, force: true })
  }
}
