import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { globSync, readFileSync } from 'node:fs'
import { chmod, mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '../..')
const BASH = '/bin/bash'

/** The pages that users read: the README and docs, without the decisions. */
export const PAGES = ['README.md', ...globSync('docs/*.md', { cwd: ROOT }).sort()]

export const pageText = (page: string): string => readFileSync(join(ROOT, page), 'utf8')

/** The commands of one block, in order. */
export interface Block {
  /** The position in the docs, such as `docs/cli.md:60`. */
  readonly at: string
  readonly lines: readonly Typed[]
}

export interface Typed {
  /** The machine in the prompt, or an empty string. */
  readonly who: string
  readonly text: string
}

/** In a block of `sh`, each line is a command. In a block of `console`, only lines with a prompt are. */
const linesOf = (language: string, body: string): Typed[] =>
  body
    .replaceAll(/\\\n\s*/g, '')
    .split('\n')
    .flatMap((line) => {
      const [, who = '', text = ''] = language === 'console' ? (/^([\w-]*)\$ (.+)$/.exec(line) ?? []) : ['', '', line]
      return text === '' ? [] : [{ who, text }]
    })

export const blocksOf = (page: string, markdown: string): Block[] =>
  [...markdown.matchAll(/^```(sh|bash|shell|console)\b[^\n]*\n(.*?)^```$/gms)].map(({ 1: language = '', 2: body = '', index }) => ({
    at: `${page}:${markdown.slice(0, index).split('\n').length}`,
    lines: linesOf(language, body),
  }))

/** A program that a line started, with its arguments. */
export type Call = readonly [string, ...string[]]

/** Directories that documented commands write to, created below the stage. */
const PLACES = ['etc/x0x', 'usr/local/bin', 'var/lib/x0x', 'var/lib/prometheus/node-exporter', 'run/rexd', 'srv/app']
const HOME_PLACES = ['.x0x', '.config/fish/completions', 'deploy/compose', 'docs']
const OF_THE_MACHINE = /(?<![\w.~/-])\/(?=(?:etc|usr|var|run|srv)\/)/g

/** A stand-in for any program. It only records its name and arguments. */
const recorder = (calls: string): string => `#!${BASH}\nprintf '%s\\0' "\${0##*/}" "$@" $'\\x1e' >> '${calls}'\n`

/**
 * Runs documented lines in a real shell, so that quotes, pipes, redirections, variables and functions work. On its PATH, every program
 * is a stand-in that only records its arguments. A program without a stand-in is not found, and its line fails.
 */
export class Stage {
  readonly #root: string

  private constructor(root: string) {
    this.#root = root
  }

  static async create(root: string, programs: readonly string[]): Promise<Stage> {
    const bin = join(root, 'bin')
    for (const place of ['bin', ...PLACES, ...HOME_PLACES]) await mkdir(join(root, place), { recursive: true })
    await writeFile(join(root, 'recorder'), recorder(join(root, 'calls')))
    await chmod(join(root, 'recorder'), 0o755)
    for (const program of programs) await symlink('../recorder', join(bin, program))
    return new Stage(root)
  }

  /** Returns the programs that a block starts, in order. Fails if the shell reports an error. */
  async calls({ at, lines }: Block): Promise<Call[]> {
    await writeFile(join(this.#root, 'calls'), '')
    const text = lines.map((line) => line.text.replaceAll(OF_THE_MACHINE, `${this.#root}/`)).join('\n')
    const env = { HOME: this.#root, PATH: join(this.#root, 'bin'), LANG: 'C.UTF-8' }
    const { status, stderr } = spawnSync(BASH, ['--norc', '-c', `set -e\n${text}\nwait`], { cwd: this.#root, env, encoding: 'utf8' })
    assert.deepEqual([status, stderr], [0, ''], at)
    const noted = (await readFile(join(this.#root, 'calls'), 'utf8')).replaceAll(this.#root, '').split('\0\x1e\0')
    assert.equal(noted.pop(), '')
    return noted.map((call) => call.split('\0') as [string, ...string[]])
  }
}
