// Package wording makes the texts that people read: numbers that agree with their nouns, plans as sentences
// with one line for each decision, and texts of other programs, such as container runtimes and registries,
// shortened so that they fit into events and statuses.
package wording
