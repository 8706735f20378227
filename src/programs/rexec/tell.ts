/** No host listens, or a command could not be run. */
export const EXIT_NO_HOST = 127

export const tell = (text: string): void => void process.stderr.write(`${text}\n`)

/** Resolves when standard output has taken it, or nobody reads it any more. */
export const write = async (text: string): Promise<void> =>
  new Promise((resolve) => {
    process.stdout.once('error', () => resolve())
    process.stdout.write(text, () => resolve())
  })

export const noHost = (): number => {
  tell('HOST NOT FOUND')
  return EXIT_NO_HOST
}
