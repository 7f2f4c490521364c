// Package controller drives NodeImages, ImagePullJobs and ImageListPullJobs, and keeps the copies of pull
// secrets: it reads what package imagepull plans from, and writes what that decided.
package controller
