import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { AppError } from '../../base/errors.ts'

const NAMES = ['page.html', 'sign-in.html', 'page.js', 'sign-in.js', 'page.css', 'icon.svg'] as const

export type PageFileName = (typeof NAMES)[number]
export type PageFiles = Readonly<Record<PageFileName, Buffer>>

export interface PageFile {
  readonly name: PageFileName
  readonly type: string
  /** Of the sign-in page, which anybody may see. */
  readonly open: boolean
}

const HTML = 'text/html; charset=utf-8'
const SCRIPT = 'text/javascript; charset=utf-8'

/** By the path that a browser asks for. */
export const PAGE_FILES: Readonly<Record<string, PageFile>> = {
  '/': { name: 'page.html', type: HTML, open: false },
  '/page.js': { name: 'page.js', type: SCRIPT, open: false },
  '/sign-in': { name: 'sign-in.html', type: HTML, open: true },
  '/sign-in.js': { name: 'sign-in.js', type: SCRIPT, open: true },
  '/page.css': { name: 'page.css', type: 'text/css; charset=utf-8', open: true },
  '/icon.svg': { name: 'icon.svg', type: 'image/svg+xml', open: true },
}

/** Reads them all: what is served is what was built when we started. Throws `bad_config` where one is missing. */
export const loadPageFiles = async (directory: string): Promise<PageFiles> => {
  const entries = NAMES.map(async (name) => {
    try {
      return [name, await readFile(join(directory, name))] as const
    } catch (error) {
      throw new AppError('bad_config', `${join(directory, name)} cannot be read: build x0x anew (npm run build)`, { cause: error })
    }
  })
  return Object.fromEntries(await Promise.all(entries)) as Record<PageFileName, Buffer>
}
