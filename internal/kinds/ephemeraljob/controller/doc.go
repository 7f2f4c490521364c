// Package controller carries out the plans of package ephemeraljob.
package controller
