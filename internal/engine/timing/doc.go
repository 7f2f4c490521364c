// Package timing computes when something is due: when a plan is made again although nothing happens, when a
// failed attempt may be repeated, and how long the seconds of an API field are.
package timing
