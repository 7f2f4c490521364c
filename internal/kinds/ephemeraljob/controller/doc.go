// Package controller carries out what package ephemeraljob plans.
package controller
