package imagepull

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/afloat-project/afloat/internal/engine/imageref"
)

var (
	// addresses matches URLs and digests in an error text. The user or the registry chose them, so they say
	// nothing about the reason of the error.
	addresses = regexp.MustCompile(`[a-z]+://\S*|\b[a-z0-9]+:[0-9a-f]{32,}`)
	// refusedCode matches an HTTP status in the forms of container runtimes: "unexpected status code 401",
	// "StatusCode: 403", "http code 403".
	refusedCode = regexp.MustCompile(`(status|code|http)[^0-9]{0,60}\b40[13]\b`)
)

// unauthorized reports whether the registry rejected the credentials. Runtimes return the registry's response
// as text that also contains the image name, so a tag 401 or a repository named forbidden must not count as a
// rejection.
func unauthorized(err error, k key) bool {
	if code := status.Code(err); code == codes.Unauthenticated || code == codes.PermissionDenied {
		return true
	}

	text := strings.ToLower(err.Error())
	text = addresses.ReplaceAllString(text, " ")
	for _, name := range []string{
		full(k.reference()), k.reference(), strings.TrimSuffix(full(k.image), ":latest"), k.image,
	} {
		if name != "" {
			text = strings.ReplaceAll(text, strings.ToLower(name), " ")
		}
	}

	return refusedCode.MatchString(text) ||
		slices.ContainsFunc([]string{
			"unauthorized", "authentication required", "access denied", "denied:", "forbidden",
			"insufficient_scope", "authorization failed",
		}, func(sign string) bool { return strings.Contains(text, sign) })
}

// foreign returns a copy of a user's labels or annotations without those that the runtime would interpret.
// Admission rejects them, but they may have been stored before.
func foreign(pairs map[string]string) map[string]string {
	pairs = maps.Clone(pairs)
	maps.DeleteFunc(pairs, func(key, _ string) bool { return imageref.OfRuntime(key) })
	return pairs
}
