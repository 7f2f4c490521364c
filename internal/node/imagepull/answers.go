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
	// addresses are parts of texts that the user or the registry chose, and that say nothing about the
	// answer.
	addresses = regexp.MustCompile(`[a-z]+://\S*|\b[a-z0-9]+:[0-9a-f]{32,}`)
	// refusedCode is an HTTP status as runtimes write it: "unexpected status code 401", "StatusCode: 403",
	// "http code 403".
	refusedCode = regexp.MustCompile(`(status|code|http)[^0-9]{0,60}\b40[13]\b`)
)

// unauthorized tells whether the registry refused the credentials. Runtimes pass the registry's answer on as
// text, in which the image has its place too: a tag 401, or a repository named forbidden, is no refusal.
func unauthorized(err error, k key) bool {
	if code := status.Code(err); code == codes.Unauthenticated || code == codes.PermissionDenied {
		return true
	}

	text := strings.ToLower(err.Error())
	text = addresses.ReplaceAllString(text, " ")
	for _, name := range []string{full(k.reference()), k.reference(),
		strings.TrimSuffix(full(k.image), ":latest"), k.image} {
		if name != "" {
			text = strings.ReplaceAll(text, strings.ToLower(name), " ")
		}
	}

	return refusedCode.MatchString(text) ||
		slices.ContainsFunc([]string{"unauthorized", "authentication required", "access denied", "denied:",
			"forbidden", "insufficient_scope", "authorization failed"}, func(sign string) bool {
			return strings.Contains(text, sign)
		})
}

// foreign returns a copy of labels or annotations of a user without those that would tell the runtime what to
// do. They are refused at admission, but may have been stored before.
func foreign(pairs map[string]string) map[string]string {
	pairs = maps.Clone(pairs)
	maps.DeleteFunc(pairs, func(key, _ string) bool { return imageref.OfRuntime(key) })
	return pairs
}
