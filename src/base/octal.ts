/** The permission bits of a file as chmod(1) has them: `0644`. */
export const octal = (mode: number): string => (mode & 0o7777).toString(8).padStart(4, '0')
