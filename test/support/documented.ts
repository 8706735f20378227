import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { globSync, readFileSync } from 'node:fs'
import { chmod, mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '../..')
const BASH = '/bin/bash'

/** What users read: the README and the pages of docs, without the decisions. */
export const PAGES = ['README.md', ...globSync('docs/*.md', { cwd: ROOT }).sort()]

export const pageText = (page: string): string => readFileSync(join(ROOT, page), 'utf8')

/** Commands of one block, in order. */
export interface Block {
  /** `docs/cli.md:60` */
  readonly at: string
  readonly lines: readonly Typed[]
}

export interface Typed {
  /** The machine of the prompt; empty where there is none. */
  readonly who: string
  readonly text: string
}

/** `sh`: each line is one of a shell. `console`: those with a prompt are. */
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

/** A program that was started by a line, with its words. */
export type Call = readonly [string, ...string[]]

/** Directories of the file system of a machine that lines write to; they stand below the stage. */
const PLACES = ['etc/x0x', 'usr/local/bin', 'var/lib/x0x', 'var/lib/prometheus/node-exporter', 'run/rexd', 'srv/app']
const HOME_PLACES = ['.x0x', '.config/fish/completions', 'deploy/compose', 'docs']
const OF_THE_MACHINE = /(?<![\w.~/-])\/(?=(?:etc|usr|var|run|srv)\/)/g

/** Answers for every program: it notes who was started with which words, and does nothing. */
const recorder = (calls: string): string => `#!${BASH}\nprintf '%s\\0' "\${0##*/}" "$@" $'\\x1e' >> '${calls}'\n`

/**
 * A shell reads the lines, so that quotes, pipes, redirections, variables and functions are what they are; but on its PATH every
 * program is one that only notes its words. What has no place there is not found, and its line fails.
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

  /** The programs that a block starts, in the order in which they came. Fails where the shell complains. */
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
