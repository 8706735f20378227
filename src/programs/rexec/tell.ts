/** No host listens, or a command could not be run. */
export const EXIT_NO_HOST = 127

export const tell = (text: string): void => void process.stderr.write(`${text}\n`)

export const noHost = (): number => {
  tell('HOST NOT FOUND')
  return EXIT_NO_HOST
}
