import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandler;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Hold a role by the sidecar, and write "ROLE TOKEN" to stdout while it is held.
 *
 * <p>RINK_API=127.0.0.1:8181 java Hold.java ROLE
 *
 * <p>The stream says that something has changed. A renewal says what is held, and until when. Java has no JSON of its
 * own: with more than one role, use your library in place of `field`.
 */
public class Hold {
    static final String API = "http://" + System.getenv().getOrDefault("RINK_API", "127.0.0.1:8181");
    static final HttpClient CLIENT = HttpClient.newBuilder()
            .proxy(HttpClient.Builder.NO_PROXY).version(HttpClient.Version.HTTP_1_1).build();
    static final Semaphore changed = new Semaphore(0);
    static volatile String grant = "";
    static volatile boolean stopping;
    static String role, token;
    static long end;

    static long nowMs() throws Exception {
        return Math.round(1000 * Double.parseDouble(Files.readString(Path.of("/proc/uptime")).split(" ")[0]));
    }

    static String field(String text, String name) {
        Matcher found = Pattern.compile("\"" + name + "\":\"?([^,\"}]*)").matcher(text);
        return found.find() ? found.group(1) : "";
    }

    static <T> HttpResponse<T> call(String path, String body, BodyHandler<T> as) throws Exception {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(API + path))
                .header("Content-Type", "application/json").header("Accept", "text/event-stream")
                .POST(HttpRequest.BodyPublishers.ofString(body));
        if (!path.equals("/v1/hold")) request.timeout(Duration.ofSeconds(2));
        return CLIENT.send(request.build(), as);
    }

    /** Keep a stream open, and note that something has changed. */
    static void follow() {
        for (;; pause(300)) {
            try {
                String anew = "{\"roles\":[\"" + role + "\"],\"consumer\":\"java\",\"alive\":15}";
                String body = grant.isEmpty() ? anew : "{\"grant\":\"" + grant + "\"}";
                var stream = call("/v1/hold", body, BodyHandlers.ofLines());
                if (stream.statusCode() == 410) grant = ""; // the sidecar was restarted, or has forgotten us
                stream.body().filter(line -> line.startsWith("data:") && !field(line, "role").isEmpty())
                        .forEach(line -> { // granted, lost, waiting
                            grant = field(line, "grant");
                            changed.release();
                        });
            } catch (Exception error) { // try again
            }
        }
    }

    /** Ask what is held, and answer what is lost. No work runs meanwhile. */
    static void renew() throws Exception {
        long asked = nowMs();
        var answer = call("/v1/renew", "{\"grant\":\"" + grant + "\"}", BodyHandlers.ofString());
        long read = nowMs();
        if (answer.statusCode() != 200) return;
        String turn = answer.body().replaceFirst(".*\"held\":\\[", "");
        String state = field(turn, "state");
        end = 0;
        if (state.equals("lost")) {
            String lost = "{\"grant\":\"" + grant + "\",\"role\":\"" + role + "\",\"token\":" + field(turn, "token") + "}";
            call("/v1/release", lost, BodyHandlers.discarding());
        } else if (state.equals("held")) {
            long told = Long.parseLong(field(turn, "now_ms"));
            boolean isSameClock = asked - 20 <= told && told <= read + 20;
            token = field(turn, "token");
            end = isSameClock ? Long.parseLong(field(turn, "until_ms")) : asked + Long.parseLong(field(turn, "left_ms"));
        }
    }

    static void pause(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    public static void main(String[] arguments) throws Exception {
        role = arguments[0];
        Thread main = Thread.currentThread(), follower = new Thread(Hold::follow);
        follower.setDaemon(true);
        follower.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> { // SIGTERM: stay until nothing is held
            stopping = true;
            try {
                main.join();
            } catch (InterruptedException error) { // ends now
            }
            Runtime.getRuntime().halt(0);
        }));
        for (long renewedAt = 0; !stopping || nowMs() < end; ) {
            boolean isChanged = changed.tryAcquire(100, TimeUnit.MILLISECONDS);
            if (!grant.isEmpty() && (isChanged || nowMs() >= renewedAt + 1000)) {
                changed.drainPermits();
                renewedAt = nowMs();
                try {
                    renew();
                } catch (java.io.IOException error) { // the end that was told binds as before
                }
            }
            if (nowMs() + 100 < end) System.out.println(role + " " + token); // before each write
        }
    }
}
