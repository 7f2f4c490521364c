// Package controller reconciles NodeImages, ImagePullJobs and ImageListPullJobs, and maintains the copies of
// pull secrets: it reads the input of the plans of package imagepull, and carries them out.
package controller
